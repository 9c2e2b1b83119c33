"""
Logs from anywhere: plain, packed, wrapped, cut.
"""

import gzip
from pathlib import Path

import pytest

from mtpdeploy.core.diagnosis import Cause, Stage
from mtpdeploy.deploy.inquest import PIECE, Inquest, hold, root
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

    assert hold(str(log), SGLANG).verdict is None
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
