"""
All checks of the gate, one after the other: `python -m tests`.

Every step runs, whatever became of those before it; pytest comes last, so that its summary ends the
output. Leaves with 1 where any of them failed.
"""

import subprocess
import sys
import time
from pathlib import Path

STEPS = (
    ("format", ("ruff", "format", "--check", "--quiet", ".")),
    ("lint", ("ruff", "check", "--quiet", ".")),
    ("types", ("mypy",)),
    ("floors", ("lint-imports", "--no-cache")),
    ("tests", ("pytest", "-q", *sys.argv[1:])),
)
"""What is run, in order, by the programs of this virtual environment."""


def main() -> int:
    """
    Run every step; how many failed decides the exit status.
    """
    programs = Path(sys.executable).parent
    failed = []
    for name, (program, *arguments) in STEPS:
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        status = subprocess.run([programs / program, *arguments], check=False).returncode
        if status:
            failed.append(name)
        if name != "tests":
            print(
                f"== {name}: {'FAILED' if status else 'ok'} in {time.monotonic() - begun:.0f} s", flush=True
            )
    if failed:
        print(f"== failed: {', '.join(failed)}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
