"""
Following where no reader can run: the same events, asked for with sh, sed, ls and dd.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from mtpdeploy.core.launch import PROCESS_FILE
from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote.box import Box, Result
from mtpdeploy.remote.follow import Follower, LogSource
from mtpdeploy.remote.frames import Ended, Gone, Heartbeat, LineBack, LineLost, LogChanged, NewBytes
from mtpdeploy.remote.poll import polled_on
from tests.fakes.clock import FakeClock
from tests.fakes.following import Witness, nasty_log, write_slowly
from tests.fakes.run import LocalRun

CODE = "i=0; while :; do echo line $i; i=$((i+1)); done >>attempt.log"


class LocalBox:
    """
    As much of a `Box` as polling needs, on this machine; `lost` makes the next question unanswered.
    """

    def __init__(self, shell: str, path: str) -> None:
        self._shell = shell
        self._path = path
        self.lost = 0
        self.answered = 0

    def run(self, script: str, *, limit: float) -> Result:
        """
        Run `script`.

        Raises:
            ConnectionLost: a test asked for it.
        """
        if self.lost:
            self.lost -= 1
            raise ConnectionLost("cut by the test")
        done = subprocess.run(
            [self._shell, "-s"],
            input=script.encode(),
            capture_output=True,
            timeout=limit,
            env={"PATH": self._path, "HOME": os.environ["HOME"]},
            check=False,
        )
        self.answered += len(done.stdout)
        return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def box(tmp_path: Path) -> LocalBox:
    """
    A box that has nothing but the programs that polling says it needs: no python, no tail, no head.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "sed", "ls", "dd", "tr", "cat", "date", "ps"):
        found = next(Path(d) / name for d in ("/bin", "/usr/bin") if (Path(d) / name).exists())
        (programs / name).symlink_to(found)
    return LocalBox(str(programs / "sh"), str(programs))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LocalRun]:
    """
    A run in a folder whose name needs quoting.
    """
    with LocalRun(tmp_path / "a run's $folder") as run:
        yield run


def follower_of(run: LocalRun, box: LocalBox, witness: Witness, **options: Any) -> Follower:
    """
    A follower that polls; its clock does not make it wait.
    """
    clock = FakeClock()
    source = LogSource(str(run.folder), run.path.name, 30000)
    opener = polled_on(cast("Box", box), clock)
    return Follower(opener, source, sink=witness.copy.extend, clock=clock, **options)


class TestPolling:
    """
    The fallback.
    """

    def test_every_byte_once_across_lost_answers(self, run: LocalRun, box: LocalBox) -> None:
        """
        Bytes of all kinds, more than an answer holds, with answers that never came.
        """
        log, witness = nasty_log(3, 4_000_000), Witness()
        with follower_of(run, box, witness) as follower:
            writer = write_slowly(run.write, log, 3, 0.02)
            for size in (10, 400_000, 2_000_000):
                witness.watch_bytes(follower, size)
                box.lost = 2
                witness.watch_count(follower, len(witness.of(LineLost)) + 1, LineBack)
            writer.join()
            run.exit(4)
            witness.watch(follower, lambda _: False)

        assert log == bytes(witness.copy)
        assert log == witness.data
        assert (
            Ended(4, vanished=False, record={"status": 4, "signal": None, "stopped": ""})
            == witness.events[-1]
        )
        assert 3 == len(witness.of(LineLost))

    def test_costs_what_is_new(self, run: LocalRun, box: LocalBox) -> None:
        """
        A log that does not grow is not read again; one that grows costs a block more at most.
        """
        run.write(b"x" * 1_000_000)
        witness = Witness()
        with follower_of(run, box, witness) as follower:
            witness.watch(follower, lambda w: len(w.of(Heartbeat)) > 5)

        assert 1_000_000 < box.answered < 1_010_000

    def test_a_killed_process_has_vanished_behind_all_its_bytes(self, tmp_path: Path, box: LocalBox) -> None:
        """
        Zombies included: nobody may reap them.
        """
        witness = Witness()
        with LocalRun(tmp_path / "r", ("sh", "-c", f"cd {tmp_path}/r; {CODE}")) as run:
            with follower_of(run, box, witness) as follower:
                witness.watch(follower, lambda w: len(w.data) > 10_000)
                run.process.kill()
                witness.watch(follower, lambda _: False)
            stored = run.path.read_bytes()

        assert Ended(None, vanished=True, record={"vanished": True, "stopped": ""}) == witness.events[-1]
        assert stored == bytes(witness.copy)

    @pytest.mark.parametrize("text", [None, '{"pid": 1, "start": "1"}'])
    def test_a_run_that_never_tells_its_process_has_vanished(
        self, run: LocalRun, box: LocalBox, text: str | None
    ) -> None:
        """
        It is not asked for for ever, and the first process of the box is never taken for it.
        """
        (run.folder / PROCESS_FILE).unlink()
        if text is not None:
            (run.folder / PROCESS_FILE).write_text(text)
        witness = Witness()
        with follower_of(run, box, witness) as follower:
            witness.watch(follower, lambda _: False)

        assert Ended(None, vanished=True, record={"vanished": True, "stopped": ""}) == witness.events[-1]

    def test_changes_of_the_log_are_told_once(self, run: LocalRun, box: LocalBox) -> None:
        """
        Truncated, deleted, replaced: as a reader on the box would tell.
        """
        witness = Witness()
        with follower_of(run, box, witness) as follower:
            run.write(b"one")
            witness.watch(follower, lambda w: w.data == b"one")
            run.path.write_bytes(b"2")
            witness.watch(follower, lambda w: w.data == b"one2")
            run.path.rename(run.path.with_suffix(".1"))
            witness.watch(follower, lambda w: len(w.of(LogChanged)) == 2)
            box.lost = 1
            witness.watch(follower, lambda w: bool(w.of(LineBack)))
            run.write(b"three")
            witness.watch(follower, lambda w: w.data == b"one2three")
            run.exit(0)
            witness.watch(follower, lambda _: False)

        expected = [LogChanged("truncated", 3), LogChanged("deleted", 1), LogChanged("replaced", 1)]
        assert expected == witness.of(LogChanged)
        assert b"one2three" == witness.data

    def test_begins_behind_an_offset_or_at_the_end(self, run: LocalRun, box: LocalBox) -> None:
        """
        As with a reader on the box.
        """
        run.write(b"0123456789" * 1000)
        run.exit(0)
        for offset in (9998, -2):
            witness = Witness()
            with follower_of(run, box, witness, offset=offset) as follower:
                event = follower.get(10)
                while not isinstance(event, NewBytes):
                    event = follower.get(10)

            assert NewBytes(9998, b"89") == event

    def test_a_folder_that_is_not_there_is_named(self, run: LocalRun, box: LocalBox) -> None:
        """
        What the shell says is in the reason.
        """
        witness = Witness()
        run.folder.rename(run.folder.with_name("moved"))
        with follower_of(run, box, witness) as follower:
            witness.watch(follower, lambda _: False)
        run.folder.with_name("moved").rename(run.folder)

        assert "the box did not answer" in witness.of(Gone)[0].reason
        assert "a run's $folder" in witness.of(Gone)[0].reason
