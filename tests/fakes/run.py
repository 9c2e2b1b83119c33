"""
A run's directory on this machine, with a real process, as the launch would leave it.
"""

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from mtpdeploy.core.launch import EXIT_FILE, PROCESS_FILE, RUN_MARKER
from mtpdeploy.onbox.identity import identify


class LocalRun:
    """
    `words` is the command that stands for the supervisor; it carries the run's marker.
    """

    def __init__(self, folder: Path, words: tuple[str, ...] = ("sleep", "600")) -> None:
        self.folder = folder
        self.path = folder / "attempt.log"
        folder.mkdir(exist_ok=True)
        self.path.touch()
        self.process = subprocess.Popen(
            words, env={**os.environ, RUN_MARKER: folder.name}, stdin=subprocess.DEVNULL
        )
        (folder / PROCESS_FILE).write_text(json.dumps(identify(self.process.pid)))

    def write(self, data: bytes) -> None:
        """
        Append to the log.
        """
        with self.path.open("ab") as file:
            file.write(data)

    def exit(self, status: int) -> None:
        """
        Record the exit as the supervisor does, and end the process.
        """
        record = self.folder / "exit.new"
        record.write_text(json.dumps({"status": status, "signal": None}))
        record.rename(self.folder / EXIT_FILE)
        self.kill()

    def kill(self) -> None:
        """
        SIGKILL: no record is written.
        """
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
