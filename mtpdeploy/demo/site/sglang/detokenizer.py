"""The detokenizer process: turns token numbers into words between the scheduler and the main process."""

from __future__ import annotations

import signal
import time

from .child import become
from .pipes import Reader, send
from .settings import load
from .speech import text_between

IMPORT_S = 7.0


def run_detokenizer_process(results: int, out: int) -> None:
    """The child's main function; it lives until it is killed or nobody writes to it any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = load()
    hostile = settings.hostile_now()
    time.sleep(IMPORT_S / settings.speed)
    become("sglang::detokenizer")
    reader = Reader(results)
    for message in reader.messages():
        if "to" in message:
            begin, end = int(message["from"]), int(message["to"])
            message["text"] = "!" * (end - begin) if hostile.nonsense else text_between(begin, end)
            if hostile.empty_answers:
                message["text"] = ""
        send(out, message)
    # SGLang's own stays behind when the scheduler is gone (it reads from a socket that never closes).
    time.sleep(86400)
