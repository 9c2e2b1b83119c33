"""
The tests on the real SGLang: `python -m tests.real`, with pytest's own options behind it.

The first run installs it into a cache (1.6 GB, a minute or two); MTPDEPLOY_REAL_CACHE names another place.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """
    Run pytest on this folder, with the tests that a plain run leaves out.
    """
    named = any(Path(word.partition("::")[0]).exists() for word in sys.argv[1:])
    where = [] if named else [str(HERE)]
    words = [sys.executable, "-m", "pytest", "-m", "real", *where, *sys.argv[1:]]
    return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
