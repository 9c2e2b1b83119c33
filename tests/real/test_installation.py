"""
The cache of installations: made once, and an interrupted one never taken for a whole one.
"""

import sys
from pathlib import Path

import pytest

from tests.real.installation import (
    CACHE_VARIABLE,
    COMPLETE,
    InstallFailed,
    cache_folder,
    call,
    key_of,
    made_once,
    recipe_files,
    require_cpu_build,
)


class Interrupted(Exception):
    pass


def interrupted(half: Path) -> None:
    """
    Half a job.
    """
    half.touch()
    raise Interrupted


def test_an_interrupted_one_is_begun_anew(tmp_path: Path) -> None:
    """
    What it left is deleted; what ended well is kept, with what it took.
    """
    folder = tmp_path / "made"

    with pytest.raises(Interrupted), made_once(folder):
        interrupted(folder / "half")
    with made_once(folder) as missing:
        left = (folder / "half").exists()
        (folder / "whole").write_bytes(b"12345")
    with made_once(folder) as still_missing:
        pass

    assert (True, False, False) == (missing, left, still_missing)
    assert '"bytes":5' in (folder / COMPLETE).read_text()


def test_another_recipe_is_another_one(tmp_path: Path) -> None:
    """
    One byte or one name changed, and it is made anew.
    """
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("sglang==0.5.23")
    before = key_of([first])
    second.write_text("sglang==0.5.23")
    renamed = key_of([second])
    first.write_text("sglang==0.5.22")

    assert len({before, renamed, key_of([first])}) == 3
    assert {"requirements.txt", "_plugin.py", "pyproject.toml"} <= {path.name for path in recipe_files()}


def test_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Outside the checkout; a variable names another place.
    """
    plain = cache_folder()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))

    assert Path(__file__).parents[2] not in plain.parents
    assert tmp_path == cache_folder()


def test_a_reason_is_given(tmp_path: Path) -> None:
    """
    A program that fails says why, and so does a torch for CUDA.
    """
    version = tmp_path / "lib" / "python3.11" / "site-packages" / "torch" / "version.py"
    version.parent.mkdir(parents=True)
    version.write_text("cuda: Optional[str] = '13.0'\n")

    with pytest.raises(InstallFailed, match="no such package"):
        call(sys.executable, "-c", "raise SystemExit('no such package')")
    with pytest.raises(InstallFailed, match="for CUDA only"):
        require_cpu_build(tmp_path)
    version.write_text("cuda: Optional[str] = None\n")
    require_cpu_build(tmp_path)
