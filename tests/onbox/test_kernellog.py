import os
from pathlib import Path

import pytest

from mtpdeploy.onbox import kernellog
from mtpdeploy.onbox.kernellog import kernel_log, last_moment
from tests.onbox.kernel import Kernel


@pytest.fixture
def dmesg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    A place for a `dmesg` on a box whose /dev/kmsg is not there.
    """
    monkeypatch.delenv("MTPDEPLOY_KMSG", raising=False)
    monkeypatch.setattr(kernellog, "KMSG", str(tmp_path / "no-kmsg"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "dmesg"


def program(path: Path, text: str) -> None:
    """
    A sh script at a path.
    """
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each record gives its seconds and its text; what hangs on a record is no line.
    """
    kernel = Kernel(tmp_path, monkeypatch)
    kernel.say({1.5: "one; with a semicolon", 2.25: "two"})

    assert [(1.5, "one; with a semicolon"), (2.25, "two")] == kernel_log()
    assert 2.25 == last_moment()


def test_garbage_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Lines that are no records, and bytes that are no text, do no harm.
    """
    kernel = Kernel(tmp_path, monkeypatch)
    kernel.log.write_bytes(b"\xff\xfe nothing\n6,2,3000000,-;NVRM: \xff\n;;;\n6,x,y,-;z\n")

    assert [(3.0, "NVRM: \ufffd")] == kernel_log()


def test_an_empty_log_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A log without a line is one, unlike a log that is not there.
    """
    kernel = Kernel(tmp_path, monkeypatch)

    assert (None, None) == (kernel_log(), last_moment())
    kernel.log.write_text("")
    assert ([], 0.0) == (kernel_log(), last_moment())


def test_dmesg_where_there_is_no_kmsg(dmesg: Path) -> None:
    """
    As util-linux and busybox print it, with and without levels.
    """
    program(dmesg, "printf '[    5.140900] one\\n<6>[12345.5] two\\nno time\\n'")

    assert [(5.1409, "one"), (12345.5, "two")] == kernel_log()


@pytest.mark.parametrize(
    "text",
    [
        "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1",
        "echo no time",
        "sleep 60",
    ],
    ids=["not permitted", "no times", "hangs"],
)
def test_dmesg_that_tells_nothing(text: str, dmesg: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Refused, without times, or hanging: the log is unknown, and nobody waits for long.
    """
    monkeypatch.setattr(kernellog, "KERNEL_LIMIT", 0.5)
    program(dmesg, text)

    assert kernel_log() is None
