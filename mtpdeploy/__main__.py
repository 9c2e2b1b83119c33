"""
The entry point: `mtpdeploy` and `python -m mtpdeploy`.
"""

import sys


def main() -> None:
    """
    Run the command line and leave with its exit status.
    """
    from mtpdeploy.cli.main import run  # noqa: PLC0415 - `--version` and `--help` stay quick

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
