"""
Work beside the main loop, in a thread that never keeps the program from ending.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], name: str) -> "Future[T]":
    """
    Start `work` in a daemon thread; its result or exception is in the future.

    Executors are no use here: at exit Python waits for their threads, and one that waits for an HTTP
    answer would keep a Ctrl-C waiting, too.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future
