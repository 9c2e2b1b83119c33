"""
Every signature against every log, every log without its proof, and the effort of it all.
"""

import re
import time

import pytest

from mtpdeploy.core.diagnosis import Cause, Signature, Stage
from mtpdeploy.engines.sglang import signatures
from mtpdeploy.engines.sglang.matching import match
from mtpdeploy.engines.sglang.reading import LogReading
from mtpdeploy.engines.sglang.starts import Start
from tests.engines.sglang import recorded

LOGS = {name: recorded.recorded(name) for name in recorded.names()}
HEALTHY = [name for name, (_, known) in LOGS.items() if "cause" not in known]
FAILED = [name for name, (_, known) in LOGS.items() if "line" in known]

ALSO_SAID = {
    "r-benign-not-enough-space-line": {Cause.STATE_SLOTS},
    "r-dev-shm-leak-permanent-crashloop": {Cause.NCCL_FAILED, Cause.DISK_FULL},
    "r-flashinfer-jit-header-missing": {Cause.BUILD_KILLED, Cause.TOOLCHAIN_MISSING},
    "r-killed-line-not-oom": {Cause.BUILD_KILLED},
    "n41-no-kernel-image-in-capture": {Cause.GRAPHS_FAILED},
    "n57-gated-repo": {Cause.MODEL_NOT_FOUND},
    "p-watchdog-thread-illegal-access": {Cause.NCCL_FAILED},
}
"""Words of other causes that these logs hold as well: as a warning, a consequence or a hint."""


class TestEverySignature:
    """
    What is said of one failure is not said of another.
    """

    @pytest.mark.parametrize("name", FAILED)
    def test_no_other_cause_is_found_in_a_failed_log(self, name: str) -> None:
        """
        Of all signatures with a name, only those of the log's own cause speak in it.
        """
        lines, known = LOGS[name]

        named = {
            f.cause for f in recorded.read(lines).findings if f.weight > signatures.ORDINARY_PARENT.weight
        }

        assert named - {Cause[known["cause"]]} <= ALSO_SAID.get(name, set())

    @pytest.mark.parametrize("name", HEALTHY)
    def test_no_alarm_in_a_healthy_log(self, name: str) -> None:
        """
        Ignored imports, warnings, retractions and handled tracebacks are no failures.
        """
        reading = recorded.read(LOGS[name][0])

        assert ((), None) == (reading.findings, reading.fatal)

    @pytest.mark.parametrize("name", LOGS)
    def test_one_start_is_one_start(self, name: str) -> None:
        """
        A log has as many starts as it prints resolved arguments; code that names them begins none.
        """
        lines = LOGS[name][0]
        code = "    tree_cache = Cache(params=params, server_args=server_args)"
        printed = [line for line in lines if re.match(r"\[20[^]]+\] server_args=[S{]", line)]
        starts = recorded.read([*lines, "Traceback (most recent call last):", code]).earlier

        assert max(1, len(printed)) >= 1 + len(starts)

    @pytest.mark.parametrize("name", LOGS)
    def test_words_alone_point_to_no_other_cause(self, name: str) -> None:
        """
        Searched in every single line at the stage that the log had reached, no named signature of another
        cause matches: what tells causes apart is their words, and not only where they stand.
        """
        lines, known = LOGS[name]
        reading, claimed = LogReading(), set()
        for number, line in enumerate(lines, 1):
            reading.feed(number, line)
            if "server_args=" in line or line.startswith("  ") or "Ignore import error" in line:
                continue
            body = re.sub(r"^\[20[^]]*\] ", "", line)
            for catalogue in (signatures.EXCEPTIONS, signatures.RECORDS):
                found = match(catalogue, body, reading.stage)
                if found is not None and found.weight == signatures.NAMED and _is_an_end(body):
                    claimed.add(found.cause)

        expected = {Cause[known["cause"]]} if "cause" in known else set()
        assert claimed - expected <= ALSO_SAID.get(name, set())


class TestProof:
    """
    A verdict rests on the line that it names.
    """

    @pytest.mark.parametrize("name", FAILED)
    def test_without_its_line_the_verdict_is_another(self, name: str) -> None:
        """
        A log that lacks the proof, and only that, is judged otherwise or as unknown. Where further lines
        prove the same by themselves (`also` in what is known of the log) each is named in turn, and without
        all of them the verdict is another: none is held up by a line that only stands near.
        """
        lines, known = LOGS[name]
        left = list(enumerate(lines, 1))
        taken: list[int] = []
        verdict = recorded.judged(recorded.read(lines), known)
        while verdict.cause.name == known["cause"] and not verdict.because and len(taken) < 5:
            proof = (verdict.line or 0) - 1
            assert verdict.proof.partition(" (in ")[0][:60] in left[proof][1]
            taken.append(left.pop(proof)[0])
            verdict = recorded.judged(recorded.read(line for _, line in left), known)

        assert [known["line"], *known.get("also", [])] == taken


class TestEffort:
    """
    Reading takes time in proportion to the log.
    """

    def test_no_pattern_looks_ahead_without_bounds(self) -> None:
        """
        A pattern that may run to the end of the line from each place in it takes the square of its length.
        """
        unbounded = re.compile(r"(?<!\\)\.[*+]|\[[^\]]*\][*+][^?\\)|]*\.")

        assert [] == [s.pattern for s in signatures.SIGNATURES if unbounded.search(s.pattern)]

    @pytest.mark.parametrize(
        "signature", signatures.SIGNATURES, ids=lambda s: f"{s.cause.name}-{s.example[:30]}"
    )
    def test_a_long_line_of_half_a_failure(self, signature: Signature) -> None:
        """
        A line that nearly matches ten thousand times over is searched in a moment.
        """
        half = signature.example[: len(signature.example) // 2 + 8]
        line = (half + " ") * (200_000 // len(half))

        began = time.perf_counter()
        re.search(signature.pattern, line)

        assert time.perf_counter() - began < 2

    def test_twice_the_log_takes_twice_the_looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The number of lines that are searched grows with the log, and not faster.
        """
        looks = 0
        search = Start._search

        def counted(start: Start, number: int, rank: str, text: str) -> None:
            nonlocal looks
            looks += 1
            search(start, number, rank, text)

        monkeypatch.setattr(Start, "_search", counted)
        lines = LOGS["r-benign-libtorchcodec-traceback"][0]

        recorded.read(lines)
        once = looks
        recorded.read(lines * 2)

        assert looks - once <= 2 * once + 2


def _is_an_end(body: str) -> bool:
    """
    Whether a line could be what ended a process: an exception, or what is no record of a running server.
    """
    return bool(re.match(r"[\w.]+(?:Error|Exception)\b|.*(?:rror|ailed)\b", body))


def test_stages_are_those_in_which_a_signature_counts() -> None:
    """
    Out of memory, crashes outside Python and exceptions without a name are told apart by stage; other words
    speak for themselves.
    """
    staged = {s.cause for s in signatures.SIGNATURES if s.stages and set(s.stages) != set(Stage)}

    assert {
        Cause.OOM_WEIGHTS,
        Cause.OOM_DRAFT_WEIGHTS,
        Cause.OOM_POOLS,
        Cause.OOM_GRAPHS,
        Cause.OOM_SERVING,
        Cause.NATIVE_CRASH,
        Cause.CUDA_FAULT,
        Cause.DRAFT_FORMAT,
        Cause.GRAPHS_FAILED,
        Cause.BAD_ARGUMENT,
        Cause.CHECKPOINT_UNFIT,
        Cause.MODEL_UNSUPPORTED,
        Cause.POOL_CHECK,
        Cause.PARALLEL_SHAPE,
    } == staged
