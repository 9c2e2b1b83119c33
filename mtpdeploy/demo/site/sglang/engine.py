"""The main process's side of its children: starting them, waiting for them, asking them."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from . import lines
from .child import spawn
from .pipes import Message, Reader, send
from .resolve import Resolved


class SchedulerDiedError(Exception):
    """A child ended before it was ready; the text is what SGLang says about it."""


class Engine:
    """Scheduler and detokenizer, with the pipes between the three processes."""

    def __init__(self, state: Resolved, arguments: Dict[str, Any]) -> None:
        self.state = state
        to_scheduler, self.requests = os.pipe()
        from_scheduler, results = os.pipe()
        answers, from_detokenizer = os.pipe()
        ready, say_ready = os.pipe()
        self.scheduler = spawn("scheduler", (to_scheduler, results, say_ready))
        self.detokenizer = spawn("detokenizer", (from_scheduler, from_detokenizer))
        for descriptor in (to_scheduler, from_scheduler, results, from_detokenizer, say_ready):
            os.close(descriptor)
        self.ready = Reader(ready)
        self.answers = Reader(answers)
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.waiting: Dict[str, queue.Queue[Message]] = {}
        self.stopping = False
        self.oblivious = False
        send(self.requests, {"args": arguments})

    @property
    def children(self) -> List[subprocess.Popen[bytes]]:
        """Both child processes."""
        return [self.scheduler, self.detokenizer]

    def wait_ready(self) -> Message:
        """What the scheduler says once it is up; SchedulerDiedError if it dies first."""
        while True:
            for message in self.ready.poll(0.25):
                threading.Thread(target=self._distribute, daemon=True).start()
                return message
            if self.oblivious:
                time.sleep(0.25 if self.ready.closed else 0.0)
            elif self.ready.closed or self.scheduler.poll() is not None:
                code = self.scheduler.wait()
                raise SchedulerDiedError(self._death_text(code))

    def _death_text(self, code: int) -> str:
        if self.state.era < (0, 5, 10):
            lines.log("Rank 0 scheduler is dead. Please check if there are relevant logs.")
            lines.log(f"Exit code: {code}")
            return "EOFError"
        return (
            f"RuntimeError: Rank 0 scheduler died during initialization (exit code: {code}). If exit code is "
            "-9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
        )

    def _distribute(self) -> None:
        for message in self.answers.messages():
            with self.lock:
                box = self.waiting.get(str(message.get("rid")))
            if box is not None:
                box.put(message)

    def submit(self, message: Message) -> Tuple[str, queue.Queue[Message]]:
        """Hand a request to the scheduler; its answers arrive in the queue."""
        rid = f"{next(self.numbers):032x}"
        box: queue.Queue[Message] = queue.Queue()
        with self.lock:
            self.waiting[rid] = box
        send(self.requests, {**message, "rid": rid})
        return rid, box

    def forget(self, rid: str, *, abort: bool = False) -> None:
        """The request is over, or its client is gone (abort)."""
        with self.lock:
            self.waiting.pop(rid, None)
        if abort:
            send(self.requests, {"op": "abort", "rid": rid})

    def ask_state(self, seconds: float) -> Optional[Dict[str, Any]]:
        """The scheduler's entry of `internal_states`; None if it does not answer in time."""
        rid, box = self.submit({"op": "state"})
        try:
            return dict(box.get(timeout=seconds)["state"])
        except queue.Empty:
            return None
        finally:
            self.forget(rid)

    def open_requests(self) -> List[str]:
        """Requests that have not been answered to their end."""
        with self.lock:
            return list(self.waiting)

    def watch(self) -> None:
        """From 0.5.10 on, a thread notices a dead scheduler and raises SIGQUIT in this process."""
        code = self.scheduler.wait()
        if not self.stopping:
            lines.log(
                f"Subprocess scheduler_0 (pid={self.scheduler.pid}) crashed with exit code {code}. "
                "Triggering SIGQUIT for cleanup..."
            )
            os.kill(os.getpid(), signal.SIGQUIT)

    def kill(self) -> None:
        """SIGKILL for both children, and wait for them."""
        self.stopping = True
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        for child in self.children:
            child.wait()
