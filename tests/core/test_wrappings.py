import pytest

from mtpdeploy.core.wrappings import find_wrappings, unwrap

LOG = (
    b"[2026-12-01 03:07:28] Load weight begin. avail mem=94.32 GB\n"
    b"Traceback (most recent call last):\n"
    b'  File "scheduler.py", line 1, in run_scheduler_process\n'
    b"\n"
    b"[2026-12-01 03:07:29 TP0] Load weight end. avail mem=43.27 GB, mem usage=51.05 GB.\n"
    b"RuntimeError: Not enough memory.\n"
)


def wrapped(prefix: bytes) -> bytes:
    """
    The log with something before each of its lines.
    """
    return b"".join(prefix + line for line in LOG.splitlines(keepends=True))


@pytest.mark.parametrize(
    "prefix",
    [
        b"",
        b"2026-12-01T03:07:28.123456789Z ",
        b"2026-12-01T03:07:28.123456789+00:00 stderr F ",
        b"sglang-1  | ",
        b"[pod/sglang-0/server] ",
        b"[pod/sglang-0/server] 2026-12-01T03:07:28.123456789Z ",
        b"Dec  1 03:07:28 rtx python3[4711]: ",
    ],
    ids=["bare", "docker", "runtime", "compose", "kubernetes", "kubernetes with moments", "journal"],
)
def test_what_stands_before_every_line_is_taken_off(prefix: bytes) -> None:
    """
    The lines come out as SGLang wrote them.
    """
    data = wrapped(prefix)

    assert LOG == unwrap(data, find_wrappings(data))


def test_sglang_own_brackets_are_no_prefix() -> None:
    """
    A rank in brackets stands before most lines of a traceback, and belongs to SGLang.
    """
    data = b"[rank0]: Traceback (most recent call last):\n" * 9 + LOG

    assert () == find_wrappings(data)


def test_colours_go() -> None:
    """
    Colours of a terminal are no part of a line.
    """
    assert b"INFO:     ready\n" == unwrap(b"\x1b[32mINFO\x1b[0m:     ready\x1b[K\n", ())


def test_an_empty_log_has_no_wrapping() -> None:
    """
    Nothing is found in nothing.
    """
    assert () == find_wrappings(b"\n\n")
