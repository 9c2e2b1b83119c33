"""
Logs from anywhere: plain, packed, wrapped, cut.
"""

import gzip
from pathlib import Path

import pytest

from mtpdeploy.core.diagnosis import Cause, Stage
from mtpdeploy.deploy.inquest import PIECE, hold
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.errors import ConfigError
from tests.engines.sglang.recorded import LOGS, names, recorded


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
