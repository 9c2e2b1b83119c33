"""
Command lines run in this process, in a directory of their own.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from mtpdeploy.cli import main


class Said(Struct, frozen=True):
    """
    What a command line left with and said.
    """

    status: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The directory in which commands run; nothing of the user's own is seen.
    """
    for name in ("MTPDEPLOY_CONFIG", "MTPDEPLOY_ON", "MTPDEPLOY_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MTPDEPLOY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """
    Runs a command line to its end.
    """
    del folder

    def call(*words: str) -> Said:
        capsys.readouterr()
        status = main.run(words)
        said = capsys.readouterr()
        return Said(status, said.out, said.err)

    return call
