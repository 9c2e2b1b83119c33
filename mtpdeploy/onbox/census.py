"""
Count what a run's family uses and watch who listens on its port.
"""

from __future__ import annotations

import time
from typing import Any

from mtpdeploy.onbox.effort import effort
from mtpdeploy.onbox.identity import family, listeners, listening_sockets, proc_root, same, table

PORT_POLL = 0.25  # seconds: a listener is known long before the model answers
SLOW_POLL = 1.0  # seconds between two looks that start a program (ps, lsof), where there is no /proc


class Census:
    """
    What the family of the run `name` uses and who listens on its port, counted in a thread: it can take
    long. `process` is the run's recorded process, set from outside.
    """

    def __init__(self, name: str, port: int | None, every: float) -> None:
        self.name = name
        self.port = port
        self.every = every
        self.process: dict[str, Any] | None = None
        self.usage: dict[str, Any] = {}
        self.listening: dict[str, Any] | None = None
        self.sockets: set[str] | None = None

    def work(self) -> None:
        """
        Count for ever.
        """
        pause = PORT_POLL if proc_root() else SLOW_POLL
        while True:
            members = self.count()
            self.ask_port(members)
            until = time.monotonic() + self.every
            while time.monotonic() < until:
                time.sleep(min(pause, self.every))
                if self.port_changed():
                    self.ask_port(self.members(table()))

    def members(self, processes: list[dict[str, Any]]) -> set[int]:
        """
        The pids of the living family, the recorded process included.
        """
        process = self.process
        pids = {entry["pid"] for entry in family(process, self.name, processes)}
        return pids | ({process["pid"]} if process is not None and same(process) else set())

    def count(self) -> set[int]:
        """
        Add up what the family uses.
        """
        processes = table()
        pids = self.members(processes)
        self.usage = effort(pids, processes)
        return pids

    def port_changed(self) -> bool:
        """
        Whether other sockets listen than at the last look; cheap where there is a /proc.
        """
        root = proc_root()
        if self.port is None or root is None:
            return self.port is not None
        return listening_sockets(root, self.port) != self.sockets

    def ask_port(self, members: set[int]) -> None:
        """
        Find out who listens on the port: the run's family, another one, nobody.
        """
        if self.port is None:
            return
        root = proc_root()
        self.sockets = listening_sockets(root, self.port) if root else None
        pids = listeners(self.port)
        strangers = [pid for pid in pids if pid not in members]
        owner = "other" if strangers else "run" if pids else "none"
        self.listening = {"owner": owner, "pid": (strangers or pids or [0])[0]}
