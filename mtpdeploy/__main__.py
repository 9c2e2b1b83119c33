"""
The entry point: `mtpdeploy` and `python -m mtpdeploy`.
"""

import sys

INTERRUPTED = 130
"""What `errors.Interrupted` says too; it may not be imported yet when this is needed."""


def main() -> None:
    """
    Run the command line and leave with its exit status.

    Whatever is imported is imported in here, so that a Ctrl-C counts from the first moment on.
    """
    try:
        _listen()
        from mtpdeploy.cli.main import run  # noqa: PLC0415
        from mtpdeploy.cli.streams import own_streams  # noqa: PLC0415

        own_streams()
        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = _early(sys.argv[1:])
    sys.exit(status)


def _early(arguments: list[str]) -> int:
    """
    Interrupted while the command line was still being loaded: tell it as `cli.output` would.
    """
    import json  # noqa: PLC0415 - only for this
    import time  # noqa: PLC0415

    sys.stderr.write("interrupted\n")
    told = {"error": "interrupted", "hint": "", "exit_status": INTERRUPTED}
    if "--json-events" in arguments:
        told = {"event": "error", "at": time.time(), **told}
    if {"--json", "--json-events"} & set(arguments):
        sys.stdout.write(json.dumps(told) + "\n")
    return INTERRUPTED


def _listen() -> None:
    """
    Being asked to end, and a terminal that was closed, mean the same as Ctrl-C: detach.
    """
    import signal  # noqa: PLC0415

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
