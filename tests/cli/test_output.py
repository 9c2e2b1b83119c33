"""
What the command line does where its own output, or its own place on this machine, is of no use.
"""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mtpdeploy import __main__
from mtpdeploy.errors import Interrupted
from tests.cli.conftest import Run

PROGRAM = [sys.executable, "-m", "mtpdeploy"]


class TestFull:
    """
    Output on a full disk.
    """

    @pytest.mark.parametrize("words", [["rungs"], ["--version"], ["up", "--help"], ["history", "--json"]])
    def test_standard_output(self, folder: Path, words: list[str]) -> None:
        """
        One error, no bug and no traceback.
        """
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )

        assert (6, "error: standard output cannot be written: No space left on device") == (
            done.returncode,
            done.stderr.splitlines()[0],
        )
        assert "hint: " in done.stderr
        assert "Traceback" not in done.stderr
        assert [] == list((folder / "state").glob("traceback-*"))

    @pytest.mark.parametrize("words", [["history"], ["rungs", "--nonsense"]])
    def test_standard_error(self, folder: Path, words: list[str]) -> None:
        """
        There nothing can be said; the status tells.
        """
        del folder
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=full, check=False)

        assert (6, b"") == (done.returncode, done.stdout)


def test_a_traceback_is_for_its_user_alone(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What was at hand when a bug struck may be in it.
    """
    monkeypatch.setattr("mtpdeploy.cli.choose.load", None)
    before = os.umask(0o022)
    run("up")
    os.umask(before)
    (file,) = (folder / "state").glob("traceback-*.txt")

    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


class TestInterrupt:
    def test_during_the_imports(self, folder: Path) -> None:
        """
        A Ctrl-C while modules are imported ends like any other: with a word and 130.
        """
        (folder / "click.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
        process = subprocess.Popen(
            [*PROGRAM, "rungs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
        )
        assert process.stdout is not None
        assert "importing\n" == process.stdout.readline()
        time.sleep(0.01)
        process.send_signal(2)
        _, said = process.communicate(timeout=30)

        assert (130, "interrupted\n") == (process.returncode, said)

    def test_nothing_is_imported_before(self) -> None:
        """
        The module of the entry point imports what Python has anyhow, and knows the status by heart.
        """
        text = Path(__main__.__file__).read_text()

        assert ["import sys"] == [x for x in text.splitlines() if x.startswith(("import ", "from "))]
        assert Interrupted.exit_status == __main__.INTERRUPTED
