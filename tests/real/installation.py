"""
A real SGLang for a machine without a GPU: installed once into a cache, outside the checkout.

SGLang is the released one. Its compiled kernels, `torchvision` and `triton` are stood in for by `standins/`,
which SGLang's own plugin entry point loads.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from msgspec import Struct, json

HERE = Path(__file__).parent
RECIPE = ("requirements-torch.txt", "requirements.txt", "requirements-alone.txt", "standins")
"""What is installed: the cache is keyed by it."""

MAKER = "make_models.py"
CACHE_VARIABLE = "MTPDEPLOY_REAL_CACHE"
COMPLETE = "complete"
"""The file that is written last: without it a folder of the cache is begun anew."""


class InstallFailed(Exception):
    """
    The real SGLang cannot be installed here; the message says why.
    """


class Installation(Struct, frozen=True):
    """
    An interpreter that has SGLang, and the folder of the tiny models; `seconds` and `bytes` are what the
    installation took when it was made.
    """

    python: Path
    models: Path
    seconds: float
    bytes: int


def cache_folder() -> Path:
    """
    Where installations are kept: MTPDEPLOY_REAL_CACHE, or `mtpdeploy/real-sglang` of the user's cache.
    """
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else platformdirs.user_cache_path("mtpdeploy") / "real-sglang"


def key_of(files: list[Path]) -> str:
    """
    What tells one recipe from another: the content and the names of its files, and this Python's release.
    """
    digest = hashlib.sha256(sys.version.encode())
    for path in files:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def recipe_files() -> list[Path]:
    """
    The files of the recipe, in a fixed order.
    """
    found = [HERE / name for name in RECIPE]
    inside = [path for folder in found if folder.is_dir() for path in folder.rglob("*")]
    wanted = [
        path for path in [*found, *inside] if path.is_file() and path.suffix in (".py", ".txt", ".toml")
    ]
    return sorted(wanted)


def installed() -> Installation:
    """
    The installation of this recipe, made now where it is not there.

    Raises:
        InstallFailed: it cannot be made here.
    """
    folder = cache_folder() / key_of(recipe_files())
    venv = folder / "venv"
    with made_once(folder) as missing:
        if missing:
            install(venv)
    models = folder / f"models-{key_of([HERE / MAKER])}"
    python = venv / "bin" / "python"
    with made_once(models) as missing:
        if missing:
            call(str(python), str(HERE / MAKER), str(models))
    made = json.decode((folder / COMPLETE).read_bytes(), type=dict[str, float])
    return Installation(python, models, made["seconds"], int(made["bytes"]))


@contextmanager
def made_once(folder: Path) -> Iterator[bool]:
    """
    Whether a folder of the cache has to be made; it counts as made once the block has ended well.

    One process makes it while others wait. What an interrupted one left is deleted first.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / COMPLETE).exists():
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        begun = time.monotonic()
        yield True
        size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
        told = {"seconds": time.monotonic() - begun, "bytes": size}
        draft = folder / f"{COMPLETE}.new"
        draft.write_bytes(json.encode(told))
        draft.replace(folder / COMPLETE)


def install(venv: Path) -> None:
    """
    Make the virtual environment by the recipe.
    """
    pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--no-input")
    call(sys.executable, "-m", "venv", str(venv))
    call(*pip, "-U", "pip", "setuptools")
    call(*pip, "--no-deps", "-r", str(HERE / "requirements-torch.txt"))
    require_cpu_build(venv)
    call(*pip, "-r", str(HERE / "requirements-torch.txt"), "-r", str(HERE / "requirements.txt"))
    call(*pip, "--no-deps", "-r", str(HERE / "requirements-alone.txt"))
    source = venv.parent / "standins"
    shutil.copytree(HERE / "standins", source)  # pip builds in the folder that it is given
    call(*pip, "--no-deps", "--no-build-isolation", str(source))


def require_cpu_build(venv: Path) -> None:
    """
    Refuse a torch for CUDA before what it needs is fetched: SGLang then looks for a driver and ends.

    Raises:
        InstallFailed: pip found no CPU build.
    """
    found = next(venv.glob("lib/python*/site-packages/torch/version.py"), None)
    if found is None or not re.search(r"(?m)^cuda\b.*= None$", found.read_text()):
        raise InstallFailed(
            "pip found torch for CUDA only; have it find the CPU build (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL)"
        )


def call(*words: str) -> None:
    """
    Run a program of the installation.

    Raises:
        InstallFailed: it did not end well; with the end of what it said.
    """
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-3000:]
        raise InstallFailed(f"`{' '.join(words)}` ended with {done.returncode}:\n{said}")
