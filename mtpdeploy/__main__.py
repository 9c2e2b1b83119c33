"""
The entry point: `mtpdeploy` and `python -m mtpdeploy`.
"""

import signal
import sys
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
        status = Interrupted.exit_status
    sys.exit(status)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """
    Being asked to end, and a terminal that was closed, mean the same as Ctrl-C: detach.
    """
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
