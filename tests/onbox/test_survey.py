import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.core.machine import Facts, Gpu
from mtpdeploy.core.units import MIB
from mtpdeploy.onbox.identity import identify
from mtpdeploy.onbox.survey import memory_facts
from mtpdeploy.remote import facts
from tests.fakes.user import plain_user
from tests.onbox.place import GPU_TABLE, Place, sglang_at
from tests.onbox.runs import until


@pytest.mark.parametrize("shell", [("sh", "-s"), ("dash", "-s"), ("bash", "-s")])
def test_one_round_trip_tells_who_and_where(place: Place, shell: tuple[str, ...]) -> None:
    """
    User, home, system, clock and the free disk come in one round trip, whatever the shell, and leave nothing.
    """
    place.shell = shell
    before = time.time()
    found = place.survey()
    after = time.time()

    assert 1 == place.box.round_trips
    assert (str(place.home), str(place.work_dir), True) == (
        found.home, found.work_dir, found.work_dir_writable,
    )  # fmt: skip
    assert (True, 0.0) == (before <= found.taken_at <= after, found.clock_offset)
    assert (
        found.user == subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    )
    assert os.uname().sysname == found.system.split()[0]
    assert (True, [], False) == (found.disk_free_bytes > 0, list(place.home.iterdir()), found.simulated)


def test_without_any_python_the_shell_still_tells(place: Place) -> None:
    """
    A box without a Python is described, with the places that were looked at.
    """
    (place.bin / "python3").unlink()
    place.plain_tools()
    found = place.survey(tools="/nowhere")

    assert (None, None, str(place.home)) == (found.python, found.sglang_version, found.home)
    assert (
        "python3: not there",
        f"{place.home}/venv/bin/python: not there",
        "python: not there",
    ) == found.pythons
    assert os.uname().sysname == found.system.split()[0]


def test_a_python_that_is_too_old_is_passed_over(place: Place) -> None:
    """
    The survey runs with the next Python when the first cannot run it.
    """
    place.program("python3", "cat >/dev/null; echo 'SyntaxError: invalid syntax' >&2; exit 1")
    later = place.program("../home/venv/bin/python", f'exec {sys.executable} "$@"')
    found = place.survey()

    assert str(place.home / "venv/bin/python") == found.python
    assert (True, 2) == (found.work_dir_writable, len([p for p in found.pythons if "not there" not in p]))
    assert "SyntaxError" in found.noise
    assert later.exists()


def test_sglang_and_its_kernels_are_found_without_an_import(place: Place, tmp_path: Path) -> None:
    """
    Versions come from the installed records of the PYTHONPATH that the server will get.
    """
    found = place.survey(env={"PYTHONPATH": str(sglang_at(tmp_path / "lib"))})

    assert ("0.5.9", str(place.bin / "python3")) == (found.sglang_version, found.python)
    assert {
        "sglang": "0.5.9", "sgl_kernel": "0.3.21", "torch": "2.9.1+cu129", "flashinfer_python": "0.6.3",
        "transformers": "4.57.1",
    } == found.packages  # fmt: skip
    assert () == found.sglang_flags


@pytest.mark.parametrize(
    "env",
    [
        {"PATH": "/nonexistent"},
        {"HOME": "/nonexistent"},
        {"PYTHONHOME": "/nonexistent"},
        {"LD_PRELOAD": "/nonexistent.so", "LD_LIBRARY_PATH": "/nonexistent"},
        {"IFS": "/", "ENV": "/nonexistent", "POSIXLY_CORRECT": "1"},
    ],
    ids=lambda env: next(iter(env)),
)
def test_what_the_server_is_given_does_not_change_the_survey(place: Place, env: dict[str, str]) -> None:
    """
    The tools that ask have the login's own environment; only the interpreters are asked with the server's.
    """
    place.nvidia_smi(GPU_TABLE)
    plain = place.survey()
    found = place.survey(env=env)
    kept = ("user", "home", "system", "work_dir", "work_dir_writable", "nvidia_smi", "gpus", "noise")

    assert [getattr(plain, name) for name in kept] == [getattr(found, name) for name in kept]
    assert "PYTHONHOME" in env or plain.python == found.python


def test_a_python_that_only_the_server_finds(place: Place) -> None:
    """
    The folders of a PATH that is given are looked into as well, and come first.
    """
    given = place.program("../given/python3", f'exec {sys.executable} "$@"').resolve()
    first = place.survey(env={"PATH": str(given.parent)}).python
    (place.bin / "python3").unlink()
    place.plain_tools()
    alone = place.survey(env={"PATH": str(given.parent)}, tools="/nowhere").python

    assert (str(given), str(given)) == (first, alone)


def test_the_interpreter_that_has_sglang_is_chosen(place: Place) -> None:
    """
    A virtual environment in the home directory is preferred to a Python on PATH that lacks SGLang.
    """
    venv = place.home / "venv"
    (venv / "bin").mkdir(parents=True)
    base = Path(sys.executable).resolve()
    (venv / "bin" / "python").symlink_to(base)
    (venv / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    sglang_at(venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages", "0.5.14")
    found = place.survey()

    assert (str(venv / "bin" / "python"), "0.5.14") == (found.python, found.sglang_version)
    assert f"{place.bin}/python3: no sglang" in found.pythons


def test_a_configured_interpreter_is_the_only_one_that_counts(place: Place, tmp_path: Path) -> None:
    """
    One that is configured and absent is not replaced, but the others are told with what they have.
    """
    lib = str(sglang_at(tmp_path / "lib"))
    found = place.survey(python="/opt/none/bin/python", env={"PYTHONPATH": lib})

    assert (None, None) == (found.python, found.sglang_version)
    assert ("/opt/none/bin/python: not there", f"{place.bin}/python3: sglang 0.5.9") == (
        found.pythons[0],
        found.pythons[-1],
    )


def test_a_version_in_the_source_counts_where_no_record_is(place: Place, tmp_path: Path) -> None:
    """
    SGLang that is only on the path (0.5.7 on) tells its version in _version.py.
    """
    package = tmp_path / "lib" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "_version.py").write_text("TYPE_CHECKING = False\n__version__ = version = '0.5.12.post1'\n")
    found = place.survey(env={"PYTHONPATH": str(tmp_path / "lib")})

    assert "0.5.12.post1" == found.sglang_version


def test_the_flags_of_an_unknown_version_are_read_from_its_source(place: Place, tmp_path: Path) -> None:
    """
    A build without a release number shows its flags: quoted ones and those of annotated fields.
    """
    srt = sglang_at(tmp_path / "lib", "0.0.0.dev0") / "sglang" / "srt"
    (srt / "server_args.py").write_text('parser.add_argument("--mamba-ssm-dtype", "--other")\n')
    (srt / "arg_groups" / "fields" / "mamba.py").write_text(
        "class Mamba:\n    mamba_radix_cache_strategy: A[str, Arg(help='x')] = 'auto'\n    other: int = 1\n"
    )
    found = place.survey(env={"PYTHONPATH": str(tmp_path / "lib")})

    assert ("--mamba-radix-cache-strategy", "--mamba-ssm-dtype", "--other") == found.sglang_flags


def test_two_gpus_with_values_that_are_not_told(place: Place) -> None:
    """
    nvidia-smi's figures arrive in bytes, and N/A does no harm.
    """
    place.nvidia_smi(GPU_TABLE + "2, GPU-cccc, NVIDIA GB10, [N/A], [N/A], [N/A], 12.1, 9.1\n")
    found = place.survey()
    name = "NVIDIA RTX PRO 6000 Blackwell"

    assert "ok" == found.nvidia_smi
    assert (
        Gpu(0, "GPU-aaaa", name, 97887 * MIB, 97250 * MIB, "12.0", 4 * MIB, 13.42),
        Gpu(1, "GPU-bbbb", name, 97887 * MIB, 1200 * MIB, "12.0", 96054 * MIB, None),
        Gpu(2, "GPU-cccc", "NVIDIA GB10", 0, 0, "12.1", 0, 9.1),
    ) == found.gpus


def test_no_nvidia_smi(place: Place) -> None:
    """
    A machine without the program has no GPU, and the rest is told.
    """
    place.plain_tools()
    found = place.survey(tools="/nowhere")

    assert ("absent", ()) == (found.nvidia_smi, found.gpus)


def test_a_failing_nvidia_smi_is_quoted(place: Place) -> None:
    """
    What a broken driver makes nvidia-smi say is in the facts.
    """
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    place.program("nvidia-smi", f'echo "{text}"; exit 9')
    found = place.survey()

    assert (text, ()) == (found.nvidia_smi, found.gpus)


def test_a_hanging_nvidia_smi_is_left_behind(place: Place) -> None:
    """
    After its limit the survey answers without it, and the hanging program is ended.
    """
    place.program("nvidia-smi", f"echo $$ >> {place.bin}/pids; exec sleep 600")
    found = place.survey(limit=1.5)
    pids = [int(pid) for pid in (place.bin / "pids").read_text().split()]

    assert ("no answer within 1.5 s", True) == (found.nvidia_smi, found.work_dir_writable)
    assert until(lambda: all(identify(pid) is None for pid in pids))


def test_a_model_in_a_folder(place: Place) -> None:
    """
    Of a folder come the configuration, the bytes of the weights, the MTP tensors and what is missing.
    """
    folder = place.home / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3_5"}')
    (folder / "model-1.safetensors").write_bytes(b"x" * 1000)
    weight_map = {"model.layers.0.w": "model-1.safetensors", "mtp.fc.weight": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    model = place.survey(model=str(folder)).model

    assert model is not None
    assert (True, True, '{"model_type": "qwen3_5"}') == (model.is_local, model.exists, model.config)
    assert (True, 1000, ("model-2.safetensors",)) == (model.has_mtp, model.weight_bytes, model.missing_files)
    assert (("model-1.safetensors",), False) == (model.damaged_files, model.index_damaged)


def test_a_model_that_is_not_there(place: Place) -> None:
    """
    An absent folder is local and does not exist; a hub name that was never fetched is not local.
    """
    folder, hub = place.survey(model="/data/none").model, place.survey(model="Qwen/Qwen3.6-27B").model

    assert (True, False, "/data/none") == ((folder.is_local, folder.exists, folder.path) if folder else None)
    assert (False, False) == ((hub.is_local, hub.exists) if hub else None)


@pytest.mark.parametrize("variable", ["", "HF_HOME"])
def test_a_model_in_the_hub_cache(place: Place, variable: str) -> None:
    """
    A hub name that was fetched is found in the cache, at the revision of its main branch.
    """
    root = place.home / "hf" if variable else place.home / ".cache" / "huggingface"
    folder = root / "hub" / "models--Qwen--Qwen3.6-27B"
    for revision, config in (("old", "{}"), ("new", '{"new": 1}')):
        (folder / "snapshots" / revision).mkdir(parents=True)
        (folder / "snapshots" / revision / "config.json").write_text(config)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("new")
    model = place.survey(model="Qwen/Qwen3.6-27B", env={variable: str(root)} if variable else {}).model

    assert model is not None
    assert (False, True, '{"new": 1}', None) == (model.is_local, model.exists, model.config, model.has_mtp)


def test_a_work_directory_that_cannot_be(place: Place) -> None:
    """
    Whether files can be made is tried, and the reason is told.
    """
    place.work_dir.write_text("a file in the way")
    found = place.survey()

    assert (False, f"Not a directory: {place.work_dir}") == (found.work_dir_writable, found.work_dir_problem)


@pytest.mark.parametrize(
    ("name", "make", "why"),
    [
        ("runs", lambda path: path.touch(), "Not a directory"),
        ("runs", lambda path: path.symlink_to("nowhere"), "No such file or directory"),
        ("runs", lambda path: path.mkdir(0o000), "Permission denied"),
        ("runs", lambda path: path.mkdir(0o500), "Permission denied"),
        ("runs", lambda path: path.mkdir(0o300), "Permission denied"),
        ("launch.lock", lambda path: path.mkdir(), "Is a directory"),
        ("launch.lock", lambda path: path.touch(0o400), "Permission denied"),
        ("launch.lock", os.mkfifo, "Not a regular file"),
        ("lock.guard", lambda path: path.mkdir(), "Is a directory"),
        ("lock", lambda path: path.mkdir(), "Is a directory"),
        ("latest", lambda path: path.mkdir(), "Is a directory"),
    ],
)
def test_what_a_launch_would_fail_on(place: Place, name: str, make: Callable[[Path], None], why: str) -> None:
    """
    What earlier runs left, and the next launch cannot work with, is found out beforehand, by its path.
    """
    place.work_dir.mkdir()
    path = place.work_dir / name
    make(path)
    place.shell = (*plain_user(), "sh", "-s")
    found = place.survey()

    assert (False, f"{why}: {path}") == (found.work_dir_writable, found.work_dir_problem)
    assert [path] == list(place.work_dir.iterdir())


@pytest.mark.parametrize(
    ("name", "make", "why"),
    [
        ("", lambda path: path.chmod(0o000), "Permission denied"),
        ("runs", lambda path: path.mkdir(0o000), "Permission denied"),
        ("runs", lambda path: path.mkdir(0o400), "Permission denied"),
        ("runs", lambda path: path.touch(), "Not a directory"),
        ("runs", lambda _path: None, ""),
    ],
)
def test_runs_that_cannot_be_looked_at(
    place: Place, name: str, make: Callable[[Path], None], why: str
) -> None:
    """
    Where the runs cannot be listed or entered the survey says so; that there are none is another thing.
    """
    place.work_dir.mkdir()
    make(place.work_dir / name)
    place.shell = (*plain_user(), "sh", "-s")
    found = place.survey()

    assert (f"{why}: {place.work_dir / 'runs'}" if why else "", ()) == (found.runs_problem, found.runs)


def test_what_a_launch_left_is_no_trouble(place: Place) -> None:
    """
    Runs, the lock files and the link to the newest run are fit for the next launch, and stay as they are.
    """
    (place.work_dir / "runs" / "r-1").mkdir(parents=True)
    for name in ("launch.lock", "lock.guard", "lock"):
        (place.work_dir / name).touch(0o600)
    (place.work_dir / "latest").symlink_to("runs/r-1")
    before = sorted(place.work_dir.rglob("*"))
    place.shell = (*plain_user(), "sh", "-s")
    found = place.survey()

    assert ("", before) == (found.work_dir_problem, sorted(place.work_dir.rglob("*")))


WANTED = ("HF_TOKEN", "KEY", "OTHER")

VALUE = "hunter2"
"""What must never leave the box."""


@pytest.mark.parametrize(
    ("text", "given", "line"),
    [
        (f"HF_TOKEN='{VALUE}'\nexport KEY={VALUE}\n", ("HF_TOKEN", "KEY"), None),
        (f"  export A=1 KEY={VALUE}; OTHER='{VALUE}'\n", ("KEY", "OTHER"), None),
        (f"# HF_TOKEN={VALUE}\nMY_KEY={VALUE}\nKEYS={VALUE}\n", (), None),
        (f"A=1\nHF_TOKEN='{VALUE}\nKEY=2\n", ("HF_TOKEN", "KEY"), 4),
        (f"HF_TOKEN={VALUE}\n{VALUE} ( {VALUE}\n", ("HF_TOKEN",), 2),
        ("HF_TOKEN=$(cat ~/.token)\n", ("HF_TOKEN",), None),
        (". ~/more\n", WANTED, None),
        ("", (), None),
    ],
)
def test_secrets_are_told_by_name_alone(
    place: Place, text: str, given: tuple[str, ...], line: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Which names the file assigns, and at which line sh stops; no value of it is in the answer.
    """
    answers: list[str] = []
    parse = facts.parse

    def read_aloud(answer: dict[str, Any], **rest: Any) -> Facts:
        answers.append(json.dumps(answer))
        return parse(answer, **rest)

    monkeypatch.setattr(facts, "parse", read_aloud)
    place.work_dir.mkdir()
    path = place.work_dir / "env"
    path.touch(0o600)
    path.write_text(text)
    found = place.survey(secrets=WANTED).secrets

    assert found is not None
    assert (True, given, line) == (found.exists, found.given, found.line)
    assert (str(path), 0o600, True, "") == (found.path, found.mode, found.mine, found.problem)
    assert VALUE not in answers[0]


def test_secrets_files_that_are_none(place: Place) -> None:
    """
    An absent file, names of the login itself, a folder, and what others may read or we may not.
    """
    place.work_dir.mkdir()
    path = place.work_dir / "env"
    place.shell = (*plain_user(), "sh", "-s")
    absent = place.survey(secrets=WANTED, KEY="1").secrets
    path.mkdir()
    folder = place.survey(secrets=WANTED).secrets
    path.rmdir()
    path.touch(0o644)
    open_to_all = place.survey(secrets=WANTED).secrets
    path.chmod(0o000)
    closed = place.survey(secrets=WANTED).secrets

    assert (False, ("KEY",)) == ((absent.exists, absent.given) if absent else None)
    assert "not a regular file" == (folder.problem if folder else None)
    assert 0o644 == (open_to_all.mode if open_to_all else None)
    assert "Permission denied" == (closed.problem if closed else None)
    assert place.survey().secrets is None


def test_the_demo_box_says_so(place: Place) -> None:
    """
    A simulated box is told from a real one by its environment.
    """
    assert place.survey(MTPDEPLOY_DEMO="1").simulated


@pytest.mark.parametrize(
    ("files", "free", "limit"),
    [
        ({"memory.max": "4096", "memory.current": "3096", "memory.stat": "inactive_file 100\n"}, 1100, 4096),
        ({"memory.max": "max", "memory.current": "600"}, 2048, None),
        ({"memory.max": "4096"}, 2048, 4096),
        ({"memory.max": "999999", "memory.current": "1"}, 2048, 999_999),
        ({"memory.max": "100", "memory.current": "200"}, 0, 100),
        (
            {
                "memory/memory.limit_in_bytes": "2000",
                "memory/memory.usage_in_bytes": "900",
                "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 400\n",
            },
            1500,
            2000,
        ),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, 2048, None),
        ({}, 2048, None),
    ],
)
def test_memory_that_a_server_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], free: int, limit: int | None
) -> None:
    """
    What the machine has available and the container's limit leaves, without the page cache of either.
    """
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       9 kB\nMemFree:        1 kB\nMemAvailable:   2 kB\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("MTPDEPLOY_MEMINFO", str(meminfo))
    monkeypatch.setenv("MTPDEPLOY_CGROUP", str(tmp_path))

    assert {"free": free, "limit": limit} == memory_facts()


def test_memory_that_nobody_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without /proc (macOS) nothing is said of it.
    """
    monkeypatch.setenv("MTPDEPLOY_MEMINFO", str(tmp_path / "nowhere"))
    monkeypatch.setenv("MTPDEPLOY_CGROUP", str(tmp_path))

    assert {"free": None, "limit": None} == memory_facts()
