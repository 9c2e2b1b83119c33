"""
The entry point: `mtpdeploy` and `python -m mtpdeploy`.
"""

import sys

from mtpdeploy.errors import Interrupted


def main() -> None:
    """
    Run the command line and leave with its exit status.
    """
    try:
        from mtpdeploy.cli.main import run  # noqa: PLC0415 - an early Ctrl-C is caught, too

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = Interrupted.exit_status
    sys.exit(status)


if __name__ == "__main__":
    main()
