import json

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
        b"2026-12-01T03:07:28+0000 rtx python3[4711]: ",
        b"Tue 2026-12-01 03:07:28 UTC rtx sglang.service[4711]: ",
        b"\x1b[36msglang-1  |\x1b[0m ",
        b"\x1b[33m[pod/sglang-0/server]\x1b[0m \x1b[2m",
        b"(SGLangEngine pid=4711) ",
        b"\x1b[36m(SGLangEngine pid=4711, ip=10.0.0.2)\x1b[0m ",
        b"[default0]:",
        b"[2026-12-01T03:07:28.702Z] ",
        b"12-01 03:07:28.784 ",
        b"2026-12-01 03:07:28,531 - __main__ - INFO - ",
        b"2026-12-01 03:07:28 | ERROR | stderr | ",
        b"[1,0]<stderr>:",
        b"0: ",
        b"sglang-1  | (SGLangEngine pid=4711) 3: ",
    ],
)
def test_what_stands_before_every_line_is_taken_off(prefix: bytes) -> None:
    """
    The lines come out as SGLang wrote them.
    """
    data = wrapped(prefix)

    assert LOG == unwrap(data, find_wrappings(data))


@pytest.mark.parametrize(
    "record",
    [
        {"log": "{}\n", "stream": "stderr", "time": "2026-12-01T03:07:28.12Z"},
        {"_PID": "4711", "MESSAGE": "{}"},
        {"severity": "ERROR", "textPayload": "\x1b[31m{}\x1b[0m", "logName": "x"},
    ],
    ids=["docker", "journal", "collector"],
)
def test_lines_within_json(record: dict[str, str]) -> None:
    """
    Each record is the line that it holds, without its prefix, so that numbers are those of the file.
    """
    lines = [b"[pod/sglang-0/server] " + line for line in LOG.splitlines()]
    data = b"".join(
        json.dumps({k: v.replace("{}", line.decode()) for k, v in record.items()}).encode() + b"\n"
        for line in lines
    )

    assert LOG == unwrap(data, find_wrappings(data))


def test_dynamo() -> None:
    """
    Its moment and place stand where SGLang's stamp was, which is put back; a traceback has no prefix.
    """
    data = (
        b"2026-12-01T03:07:28.243403Z  INFO model_runner.load_model: Load weight begin. avail mem=94.32 GB\n"
        * 3
        + b"2026-12-01T03:07:29.243403Z ERROR scheduler.run: Scheduler hit an exception: Traceback\n"
        + b"RuntimeError: x\n"
    )

    assert (
        b"[2026-12-01 03:07:28] Load weight begin. avail mem=94.32 GB\n" * 3
        + b"[2026-12-01 03:07:29] Scheduler hit an exception: Traceback\n"
        + b"RuntimeError: x\n"
    ) == unwrap(data, find_wrappings(data))


def test_json_that_holds_no_line_stays() -> None:
    """
    Something else among the records, damaged or without a text, is left as it is.
    """
    good = b'{"log":"[2026-12-01 03:07:28] ready\\n","stream":"stderr"}\n'
    other = b'{"log":"cut\n{"level":"info"}\nplain\n'
    data = good * 5 + other

    assert b"[2026-12-01 03:07:28] ready\n" * 5 + other == unwrap(data, find_wrappings(data))


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
