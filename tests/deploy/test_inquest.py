"""
Logs from anywhere: plain, packed, wrapped, cut.
"""

import gzip
import random
from pathlib import Path

import pytest
from msgspec import structs

from mtpdeploy.core.diagnosis import Cause, Stage
from mtpdeploy.deploy.inquest import Inquest, hold, root
from mtpdeploy.deploy.logfile import PIECE
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.errors import ConfigError
from tests.engines.sglang.recorded import LOGS, names, recorded, scheduler_exception, start_until


@pytest.mark.parametrize("name", names())
def test_a_recorded_log_has_its_verdict(name: str) -> None:
    """
    Read from a file, each log of a server that exited gets the cause and the line that it is known for.
    """
    known = recorded(name)[1]
    exited = known.get("end", "EXITED") == "EXITED"
    held = hold(str(LOGS / f"{name}.log"), SGLANG, exit_status=known.get("exit_status"))

    if exited and known.get("cause") and known.get("line"):
        assert held.verdict is not None
        assert (known["cause"], known["line"]) == (held.verdict.cause.name, held.verdict.line)


def test_packed_and_wrapped(tmp_path: Path) -> None:
    """
    A gzipped log with docker's moments before its lines gives the same as the bare one.
    """
    bare = LOGS / "x25-nextn-on-plain-qwen3.log"
    lines = bare.read_bytes().splitlines(keepends=True)
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(b"".join(b"2026-12-01T03:07:28.12Z " + line for line in lines)))

    assert hold(str(bare), SGLANG).verdict == hold(str(packed), SGLANG).verdict


HICACHE_RUNGS = ["smaller-hierarchical-cache", "no-hierarchical-cache"]


def test_a_beginning_that_is_missing(tmp_path: Path) -> None:
    """
    A log that was cut at its head still tells its cause, and what stages are left of it.
    """
    lines = (LOGS / "x09-weights-missing.log").read_bytes().splitlines(keepends=True)
    tail = tmp_path / "tail.log"
    announced = next(number for number, line in enumerate(lines) if b"hit an exception" in line)
    tail.write_bytes(b"".join(lines[announced:]))

    held = hold(str(tail), SGLANG)

    assert held.verdict is not None
    assert Cause.MODEL_INCOMPLETE is held.verdict.cause


@pytest.mark.parametrize(
    ("stage", "arguments", "message", "answers"),
    [
        (
            "weights loaded",
            "speculative_algorithm=None, enable_hierarchical_cache=False, cuda_graph_max_bs=256",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            ["more-static-memory"],
        ),
        (
            "weights loaded",
            "speculative_algorithm='EAGLE', speculative_num_steps=1, max_running_requests=48",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            ["fewer-requests", "more-static-memory", "bf16-state", "fewest-requests", "without-mtp"],
        ),
        ("sized", "enable_hierarchical_cache=False", "MemoryError", []),
        ("sized", "enable_hierarchical_cache=True", "MemoryError", HICACHE_RUNGS),
        ("arguments", "tp_size=2", "AssertionError: SGLANG_X is not set", []),
    ],
)
def test_only_rungs_that_change_the_server_of_the_log(
    tmp_path: Path, stage: str, arguments: str, message: str, answers: list[str]
) -> None:
    """
    What the resolved arguments say is off cannot be given up, nor guessed at before it mattered.
    """
    lines = start_until(stage)
    lines[0] = lines[0].replace("tp_size=1", arguments)
    log = tmp_path / "server.log"
    log.write_text("\n".join([*lines, *scheduler_exception(message)]) + "\n")

    held = hold(str(log), SGLANG)

    assert held.verdict is not None
    assert answers == [name for name, _ in held.answers]


def test_a_healthy_log_has_no_verdict() -> None:
    """
    Tracebacks that somebody survived are no failure.
    """
    held = hold(str(LOGS / "ok-qwen35-gdn-nextn-mtp.log"), SGLANG)

    assert held.verdict is None
    assert held.ready
    assert Stage.READY in [reached.milestone.stage for reached in held.reached]
    assert 21.0 == (held.reached[-1].moment or 0) - (held.reached[0].moment or 0)


def test_an_exit_status_is_a_failure(tmp_path: Path) -> None:
    """
    A log without a word about it, and a status that is not 0: vanished.
    """
    log = tmp_path / "silent.log"
    log.write_bytes(b"[2026-12-01 03:07:28] Load weight begin. avail mem=94.32 GB\n")

    open_end = hold(str(log), SGLANG).verdict
    assert open_end is not None
    assert (Cause.UNKNOWN, None) == (open_end.cause, hold(str(log), SGLANG, running=True).verdict)
    killed = hold(str(log), SGLANG, exit_status=137).verdict
    assert killed is not None
    assert Cause.VANISHED is killed.cause


def test_line_numbers_hold_over_pieces(tmp_path: Path) -> None:
    """
    The proving line is counted right however far down it stands, and without an end of its own.
    """
    filler = b"[2026-12-01 03:07:28] Decode batch, #running-req: 1\n"
    count = 3 * PIECE // len(filler)
    failing = (LOGS / "x09-weights-missing.log").read_bytes().rstrip(b"\n")
    log = tmp_path / "long.log"
    log.write_bytes(filler * count + failing)
    short = hold(str(LOGS / "x09-weights-missing.log"), SGLANG).verdict
    long = hold(str(log), SGLANG).verdict

    assert short is not None
    assert long is not None
    assert (short.cause, (short.line or 0) + count) == (long.cause, long.line)


@pytest.mark.parametrize("content", [None, b"\x1f\x8bno gzip"], ids=["absent", "damaged"])
def test_what_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """
    One error with the name of the file.
    """
    log = tmp_path / "log.gz"
    if content is not None:
        log.write_bytes(content)

    with pytest.raises(ConfigError, match=r"log\.gz cannot be read"):
        hold(str(log), SGLANG)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_other_encodings(tmp_path: Path, encoding: str, *, packed: bool) -> None:
    """
    A log that PowerShell redirected, with a byte order mark and Windows line ends, is read as any other.
    """
    bare = LOGS / "x25-nextn-on-plain-qwen3.log"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    data = (mark + bare.read_text().replace("\n", "\r\n")).encode(encoding)
    log = tmp_path / "log"
    log.write_bytes(gzip.compress(data) if packed else data)

    plain, other = hold(str(bare), SGLANG).verdict, hold(str(log), SGLANG).verdict

    assert plain is not None
    assert plain == other


def test_several_starts_in_one_log(tmp_path: Path) -> None:
    """
    The last is judged; stages, times and figures are its own, and the earlier ones are told.
    """
    first, second = (LOGS / f"{name}.log" for name in ("n08-decode-graphs", "ok-qwen35-gdn-nextn-mtp"))
    log = tmp_path / "appended.log"
    log.write_bytes(first.read_bytes() + second.read_bytes())

    held, alone = hold(str(log), SGLANG), hold(str(second), SGLANG)

    assert (None, True, alone.figures) == (held.verdict, held.ready, held.figures)
    assert [r.milestone.stage for r in alone.reached] == [r.milestone.stage for r in held.reached]
    assert [r.moment for r in alone.reached] == [r.moment for r in held.reached]
    (before,) = held.before
    assert before.verdict is not None
    assert (1, Cause.OOM_GRAPHS) == (before.first, before.verdict.cause)


class TestTogether:
    """
    The logs of several ranks of one server.
    """

    NCCL = (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited"
    )
    OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB."

    def held(self, folder: Path, *ranks: tuple[str, str]) -> list[Inquest]:
        """
        A log for each rank that failed at a time with an exception, judged.
        """
        judged = []
        for number, (time, exception) in enumerate(ranks):
            lines = [*start_until("graphs begun", f" TP{number}"), *scheduler_exception(exception)]
            log = folder / f"rank{number}.log"
            log.write_text("\n".join(lines).replace("03:07:28", time) + "\n")
            judged.append(hold(str(log), SGLANG))
        return judged

    def test_the_first_to_fail_is_the_root(self, tmp_path: Path) -> None:
        """
        Two ranks out of memory: the earlier one.
        """
        held = self.held(tmp_path, ("03:09:00", self.OOM), ("03:08:00", self.OOM), ("03:10:00", self.OOM))

        assert held[1] is root(held)

    def test_a_lost_peer_is_an_echo(self, tmp_path: Path) -> None:
        """
        What NCCL says of a rank that is gone goes after what that rank says, whatever the clocks say.
        """
        held = self.held(
            tmp_path, ("03:07:00", self.NCCL), ("03:08:00", self.OOM), ("03:06:00", "KeyError: 1")
        )

        assert held[1] is root(held)

    def test_none_failed(self) -> None:
        """
        Then there is no root.
        """
        healthy = hold(str(LOGS / "ok-qwen3-dense.log"), SGLANG)

        assert root([healthy]) is None


class TestEnds:
    """
    Logs that just end.
    """

    BEGUN = "\n".join(start_until("weights begun")) + "\n"

    def held(self, folder: Path, text: str, *, exit_status: int | None = None) -> Inquest:
        """
        A log with this text, judged.
        """
        log = folder / "some.log"
        log.write_text(text)
        return hold(str(log), SGLANG, exit_status=exit_status)

    @pytest.mark.parametrize(
        ("last", "cause", "because"),
        [
            ("", Cause.UNKNOWN, "the log ends at “loading weights” without ready"),
            ("Killed", Cause.VANISHED, "exit status 137"),
            ("command terminated with exit code 137", Cause.VANISHED, "exit status 137"),
            ("Segmentation fault (core dumped)", Cause.UNKNOWN, "a segmentation fault (SIGSEGV)"),
            ("bash: python: command not found", Cause.SGLANG_MISSING, ""),
            ("[2026-12-01 03:07:28] Received sigquit from a child process.", Cause.SCHEDULER_DIED, ""),
            ("[2026-12-01 03:07:28] SIGTERM received. signum=None", Cause.STOPPED, "it was told to stop"),
        ],
    )
    def test_before_it_was_ready(self, tmp_path: Path, last: str, cause: Cause, because: str) -> None:
        """
        Never “no failure”, and never a status that nobody knows.
        """
        held = self.held(tmp_path, self.BEGUN + last)

        assert held.verdict is not None
        assert (True, cause) == (held.failed, held.verdict.cause)
        assert because in held.verdict.because
        assert "None" not in held.verdict.because

    def test_where_its_bar_stands(self, tmp_path: Path) -> None:
        """
        The last thing that it did, and what would tell more.
        """
        bar = "Multi-thread loading shards:   7% Completed | 1/14 [00:02<00:30,  2.31s/it]"

        verdict = self.held(tmp_path, self.BEGUN + bar).verdict

        assert verdict is not None
        assert ("its bar stands at shards 1/14",) == verdict.further
        assert "--exit-status" in verdict.remedy

    def test_stopped_once_it_was_ready(self, tmp_path: Path) -> None:
        """
        It did what it was told: no failure, but said.
        """
        lines = [*start_until("ready"), "[2026-12-01 03:07:28] SIGTERM received. signum=None"]

        held = self.held(tmp_path, "\n".join(lines))

        assert (None, (len(lines), "SIGTERM received. signum=None")) == (held.verdict, held.stopped)

    @pytest.mark.parametrize("text", ["", "\n\n", "hello\nworld\n", "\x00\x01" * 10, "INFO 12-01 vllm\n"])
    def test_no_log_of_this_engine(self, tmp_path: Path, text: str) -> None:
        """
        That is said, and is no verdict on a server; with an exit status it is one.
        """
        held = self.held(tmp_path, text)

        assert (True, False) == (bool(held.foreign), held.failed)
        assert self.held(tmp_path, text, exit_status=1).failed

    def test_long_noise_without_a_line_end(self, tmp_path: Path) -> None:
        """
        It is not empty.
        """
        assert "no line of it" in self.held(tmp_path, "x" * (2 * PIECE)).foreign

    def test_the_start_before_is_mentioned(self, tmp_path: Path) -> None:
        """
        Where the last one shows no cause: it may be about to repeat that.
        """
        first = [*start_until("graphs begun"), *scheduler_exception(TestTogether.OOM)]

        held = self.held(tmp_path, "\n".join(first) + "\n" + self.BEGUN)

        assert held.verdict is not None
        assert (Cause.UNKNOWN, 1) == (held.verdict.cause, len(held.verdict.further))
        assert Cause.OOM_GRAPHS in held.verdict.further[0]


def test_a_packed_log_that_ends_too_early(tmp_path: Path) -> None:
    """
    What can be unpacked is judged, and the cut is said.
    """
    lines = (LOGS / "x09-weights-missing.log").read_bytes()
    packed = gzip.compress(lines + b"".join(b"%d\n" % (n * 7919) for n in range(100_000)))
    log = tmp_path / "log.gz"
    log.write_bytes(packed[: len(packed) - 1000])

    held = hold(str(log), SGLANG)

    assert held.verdict is not None
    assert (Cause.MODEL_INCOMPLETE, ["cut-short"]) == (held.verdict.cause, [w.name for w in held.warnings])


def test_standard_input_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    One error, as of any other log that cannot be read.
    """
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(ConfigError, match="standard input is closed"):
        hold("-", SGLANG)


class TestManyOrdinaryLines:
    """
    What a server prints for ever while it serves is passed over in bulk, and told as if read line by line.
    """

    ORDINARY = (
        b"[2026-12-01 09:30:12 TP0] Decode batch, #running-req: 12, accept len: 2.71, #queue-req: 0\n",
        b'[2026-12-01 09:30:12] INFO:     127.0.0.1:3000 - "POST /v1/completions HTTP/1.1" 200 OK\n',
        b"[2026-12-01 09:30:12 TP0] Prefill batch, #new-seq: 1, #new-token: 12, #cached-token: 0\n",
    )
    MIXED = (
        b"[2026-12-01 09:30:12] Decode bat[2026-12-01 09:30:12 TP1] Decode batch, accept len: 1.00\n",
        b"Loading: 50%|#   | 1/2 [00:01]\rLoading: 100%|##| 2/2 [00:02]\n",
        b"\n",
    )

    @pytest.mark.parametrize("name", names())
    def test_the_same_as_line_by_line(self, name: str, tmp_path: Path) -> None:
        """
        Wherever they stand between the lines of a recorded log: before, within, behind it.
        """
        one_by_one = structs.replace(SGLANG, ordinary_run=lambda piece, _at: (len(piece), len(piece)))
        lines = (LOGS / f"{name}.log").read_bytes().splitlines(keepends=True)
        chance = random.Random(name)  # noqa: S311 - which lines, no secret
        for place in (0, chance.randrange(len(lines) + 1), chance.randrange(len(lines) + 1), len(lines)):
            kinds = self.ORDINARY[: chance.randint(1, 3)] * 9
            lines[place:place] = chance.choices([*kinds, *self.MIXED], k=60) + [self.ORDINARY[0]] * 9
        file = tmp_path / "server.log"
        file.write_bytes(b"".join(lines))

        told, expected = hold(str(file), SGLANG), hold(str(file), one_by_one)

        assert pytest.approx(expected.figures.pop("accept_length", 0), rel=0.2) == told.figures.pop(
            "accept_length", 0
        )
        assert [w.name for w in expected.warnings] == [w.name for w in told.warnings]
        assert structs.replace(expected, warnings=()) == structs.replace(told, warnings=())

    def test_most_are_passed_over(self) -> None:
        """
        A piece of nothing else is one run, and one that holds a carriage return or a second record none.
        """
        piece = b"".join(self.ORDINARY * 9)

        assert (0, len(piece)) == SGLANG.ordinary_run(piece, 0)
        for other in self.MIXED[:2]:
            spoiled = piece[: 3 * len(piece) // 9] + self.ORDINARY[0][:-1] + other + piece
            assert len(spoiled) == SGLANG.ordinary_run(spoiled, 0)[0]
