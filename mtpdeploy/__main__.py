"""
The entry point: `mtpdeploy` and `python -m mtpdeploy`.
"""

import json
import signal
import sys
import time
from types import FrameType

from mtpdeploy.errors import Interrupted


def main() -> None:
    """
    Run the command line and leave with its exit status.
    """
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
                signal.signal(number, _interrupt)
        from mtpdeploy.cli.main import run  # noqa: PLC0415 - an early Ctrl-C is caught, too

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = _early(sys.argv[1:])
    sys.exit(status)


def _early(arguments: list[str]) -> int:
    """
    Interrupted while the command line was still being loaded: tell it as `cli.output` would.
    """
    sys.stderr.write("interrupted\n")
    told = {"error": "interrupted", "hint": "", "exit_status": Interrupted.exit_status}
    if "--json-events" in arguments:
        told = {"event": "error", "at": time.time(), **told}
    if {"--json", "--json-events"} & set(arguments):
        sys.stdout.write(json.dumps(told) + "\n")
    return Interrupted.exit_status


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """
    Being asked to end, and a terminal that was closed, mean the same as Ctrl-C: detach.
    """
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
