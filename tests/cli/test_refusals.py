"""
Command lines that are refused: one whole error each, and nothing on standard output.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "refusals.toml").read_text())["case"]

HOSTS = """[hosts.h200-a]
address = "203.0.113.20"

[hosts.h200-b]
address = "203.0.113.21"

[servers.qwen]
model_path = "Qwen3.6-27B"

[servers.other]
model_path = "other"
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["fact"])
def test_one_whole_error(case: dict[str, Any], folder: Path, run: Run) -> None:
    """
    The error, what to do, exit status 2; not a word more, and nothing on standard output.
    """
    (folder / "hosts.toml").write_text(case.get("hosts", HOSTS))

    said = run(*case["words"])

    assert (2, "", case["err"].lstrip("\n")) == (said.status, said.out, said.err)


def test_the_demo_extra_is_missing(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without asyncssh the demo box says how to install it.
    """
    del folder
    for name in ("mtpdeploy.demo.box", "mtpdeploy.demo.wire"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "asyncssh", None)

    said = run("up", "--on", "demo")

    assert (2, "") == (said.status, said.out)
    assert "error: the demo box needs the extra `demo`\n\nhint: pip install 'mtpdeploy[demo]'\n" == said.err


def test_a_bug_is_one_line(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An error of our own is one line with the file that has the traceback; exit status 70.
    """

    def broken(*_: object) -> None:
        raise ZeroDivisionError("one by nothing")

    monkeypatch.setattr("mtpdeploy.cli.choose.load", broken)

    said = run("up")
    (file,) = (folder / "state").glob("traceback-*.txt")

    assert 70 == said.status
    assert said.err.startswith("error: a bug in mtpdeploy: ZeroDivisionError: one by nothing\n")
    assert said.err.endswith(f"\nhint: the traceback is in {file}; please report it\n")
    assert "in broken" in file.read_text()
