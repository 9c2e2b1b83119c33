import base64
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mtpdeploy.core.machine import Facts, Gpu, GpuHolder, Host, ModelFacts, ProcessId, SecretsFacts
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import GIB, MIB
from mtpdeploy.errors import BoxUnfit, CommandFailed, MtpDeployError
from mtpdeploy.remote import facts
from mtpdeploy.remote.facts import parse, read, survey, unfit
from mtpdeploy.remote.fitness import require_mtp
from tests.onbox.runs import ShBox

HOST = Host(name="rtx", address="203.0.113.20")
SERVER = ServerSpec(name="q", flags={"model_path": "/workspace/q"})

FRONT = b"""system=Linux 6.8.0-57-generic x86_64
user=root
home=/root
"""

IDENTITY: dict[str, Any] = {"pid": 1548, "start": "881122", "boot": "5b1c", "pid_ns": "4026532301"}

CONFIG = '{"model_type": "qwen3_5"}'

ANSWER: dict[str, Any] = {
    "begun": 1001.0,
    "now": 1003.0,
    "user": "root",
    "home": "/root",
    "work_dir": {"path": "/root/.mtpdeploy", "problem": "", "free": 52 * GIB},
    "memory": {"free": 180 * GIB, "limit": None},
    "simulated": False,
    "python": {
        "path": "/venv/main/bin/python",
        "version": "3.12.3",
        "packages": {"sglang": "0.5.9", "sgl_kernel": "0.3.21", "torch": "2.9.1"},
        "looked": ["/usr/bin/python3: no sglang", "/venv/main/bin/python: sglang 0.5.9"],
        "flags": [],
    },
    "nvidia_smi": {
        "state": "ok",
        "gpus": "0, GPU-11, NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887, 5000, 92250, 12.0, 81.02\n",
        "holders": "GPU-11, 1553, 91000, sglang::scheduler\nGPU-11, 77, 600, /usr/bin/thing\n",
    },
    "crowd": {
        "port_holders": [1548],
        "processes": [
            {
                "id": IDENTITY, "ppid": 1, "pgid": 1548, "user": "root", "kind": "server", "run": None,
                "devices": None, "listens": [30000],
                "command": "/opt/venv/bin/python -m sglang.launch_server --port 30000",
            },
            {
                "id": {**IDENTITY, "pid": 1553}, "ppid": 1548, "pgid": 1548, "user": "root", "kind": "worker",
                "run": None, "devices": None, "listens": [], "command": "sglang::scheduler",
            },
        ],
    },
    "runs": [
        {
            "name": "r2", "attempt": "{}", "process": {**IDENTITY, "log": "l"}, "alive": True,
            "exit_status": None, "log": "l", "log_bytes": 7, "outcome": None,
            "family": [{**IDENTITY, "pid": 9}],
        },
        {"name": "r1", "attempt": "x", "process": None, "alive": False, "exit_status": "odd", "family": []},
    ],
    "model": {"path": "/workspace/q", "is_local": True, "exists": True, "config": CONFIG, "has_mtp": True,
              "weight_bytes": 5, "missing_files": []},
}  # fmt: skip


def answered(answer: dict[str, Any]) -> bytes:
    """
    What comes back from a box.
    """
    return FRONT + json.dumps(answer).encode() + b"\n"


def sound(**other: Any) -> Facts:
    """
    The facts of a box on which everything is there.
    """
    return structs.replace(parse(read(answered(ANSWER), "rtx")), **other)


def test_a_recorded_answer_becomes_facts() -> None:
    """
    Every part of an answer arrives in its place.
    """
    found = parse(read(answered(ANSWER), "rtx"), sent=1000.5, received=1003.5, noise="n")

    assert ("Linux 6.8.0-57-generic x86_64", "root", "/root", 1003.0, "n") == (
        found.system, found.user, found.home, found.taken_at, found.noise,
    )  # fmt: skip
    assert ("/venv/main/bin/python", "3.12.3", "0.5.9", "2.9.1") == (
        found.python, found.python_version, found.sglang_version, found.packages["torch"],
    )  # fmt: skip
    assert (
        Gpu(
            index=0,
            uuid="GPU-11",
            name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
            total_bytes=97887 * MIB,
            free_bytes=5000 * MIB,
            compute_capability="12.0",
            used_bytes=92250 * MIB,
            power_watts=81.02,
        ),
    ) == found.gpus
    assert (
        GpuHolder("GPU-11", 1553, "sglang::scheduler", 91000 * MIB, visible=True),
        GpuHolder("GPU-11", 77, "/usr/bin/thing", 600 * MIB, visible=False),
    ) == found.gpu_holders
    assert [{}, {"GPU-11": 91000 * MIB}] == [process.gpu_bytes for process in found.processes]
    assert ((1548,), (30000,), ProcessId(**IDENTITY)) == (
        found.port_holders, found.processes[0].listens, found.processes[0].id,
    )  # fmt: skip
    assert (52 * GIB, True, 180 * GIB, None) == (
        found.disk_free_bytes, found.work_dir_writable, found.ram_free_bytes, found.ram_limit_bytes,
    )  # fmt: skip
    assert (
        ModelFacts("/workspace/q", is_local=True, exists=True, config=CONFIG, has_mtp=True, weight_bytes=5)
        == found.model
    )


def test_a_run_whose_files_make_no_sense_is_still_listed() -> None:
    """
    What can be read of a run is told, and one damaged record does not hide the others.
    """
    living, damaged = sound().runs

    assert (ProcessId(**IDENTITY), (ProcessId(**{**IDENTITY, "pid": 9}),), 7) == (
        living.process, living.family, living.log_bytes,
    )  # fmt: skip
    assert ("r1", "x", None, None) == (damaged.name, damaged.attempt, damaged.exit_status, damaged.process)


def test_a_deflated_answer_is_the_same() -> None:
    """
    A long answer travels deflated.
    """
    packed = {"zlib": base64.b64encode(zlib.compress(json.dumps(ANSWER).encode())).decode()}

    assert read(answered(ANSWER), "rtx") == read(answered(packed), "rtx")


@pytest.mark.parametrize(
    ("sent", "received", "offset"),
    [(1000.5, 1003.5, 0.0), (900.0, 903.0, 100.0), (1100.0, 1103.0, -99.0), (1001.0, 1003.0, 0.0)],
)
def test_the_clocks_are_compared_as_far_as_it_is_certain(sent: float, received: float, offset: float) -> None:
    """
    An offset is told only beyond what the way there and back explains.
    """
    found = parse(read(answered(ANSWER), "rtx"), sent=sent, received=received)

    assert offset == found.clock_offset


def test_without_a_python_the_rest_is_told() -> None:
    """
    The lines of the shell make facts of their own, with the places that were looked at.
    """
    out = FRONT + b"missing=python3\nunusable=/usr/bin/python\npython=none\n"
    found = parse(read(out, "rtx"), sent=5, received=7)

    assert (None, "root", "/root") == (found.python, found.user, found.home)
    assert ("python3: not there", "/usr/bin/python: does not run the survey") == found.pythons


@pytest.mark.parametrize(
    "out", [b"", b"This account is not available.\n", FRONT, FRONT + b"{half", FRONT + b'{"zlib": "AA"}\n']
)
def test_an_answer_that_is_none_is_an_error_that_quotes_it(out: bytes) -> None:
    """
    What cannot be understood is a fault of ours or a new kind of box, named with the host.
    """
    with pytest.raises(CommandFailed, match="rtx"):
        read(out, "rtx")


def test_values_arrive_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A variable with quotes, blanks and dollar signs reaches the box unchanged.
    """
    monkeypatch.setattr(facts, "PYTHONS", (sys.executable,))
    home = tmp_path / 'it\'s $HOME `x` "q"\n\\n'
    folder = home / "hub" / "models--a--b" / "snapshots" / "1"
    folder.mkdir(parents=True)
    host = structs.replace(HOST, env={"HF_HOME": str(home)}, work_dir=str(home / "work"))
    found = survey(ShBox(), host=host, server=ServerSpec(name="q", flags={"model_path": "a/b"}))

    assert (str(folder), str(home / "work")) == (found.model.path if found.model else None, found.work_dir)


def test_a_survey_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    `status` asks without a server: no model and no port are looked at.
    """
    monkeypatch.setattr(facts, "PYTHONS", (sys.executable,))
    found = survey(ShBox(), host=structs.replace(HOST, work_dir=str(tmp_path)), server=None)

    assert (None, (), sys.executable) == (found.model, found.port_holders, found.python)


def test_a_known_version_is_not_grepped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Flags are read from the source exactly when the table of versions lacks the one that is there.
    """
    monkeypatch.setattr(facts, "PYTHONS", (sys.executable,))
    (tmp_path / "sglang" / "srt").mkdir(parents=True)
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "_version.py").write_text("version = '0.5.99'")
    (tmp_path / "sglang" / "srt" / "server_args.py").write_text('"--tp-size"')
    host = structs.replace(HOST, work_dir=str(tmp_path), env={"PYTHONPATH": str(tmp_path)})
    flags = [
        survey(ShBox(), host=host, server=None, known_versions=known).sglang_flags
        for known in (("0.5.9",), ("0.5.99",))
    ]

    assert [("--tp-size",), ()] == flags


def problem(found: Facts, host: Host = HOST, server: ServerSpec = SERVER) -> tuple[str, str]:
    """
    The message and the hint of what is missing.
    """
    error = unfit(found, host, server)
    assert isinstance(error, MtpDeployError)
    assert 4 == error.exit_status
    return error.message, error.hint


def test_a_sound_box_is_fit() -> None:
    """
    Nothing is missing.
    """
    assert unfit(sound(), HOST, SERVER) is None


def test_no_python() -> None:
    """
    The error names the places; with one configured it names that, and the one that would do.
    """
    message, hint = problem(sound(python=None, pythons=("python3: not there", "/opt/py: no sglang")))
    configured = structs.replace(HOST, python="/x/python")

    assert "`rtx` has no Python of version 3.8 or later that can be found" == message
    assert hint.endswith("looked at /opt/py: no sglang\nnothing at python3")
    assert (
        "the Python configured for `rtx` does not work on it: /x/python",
        'this one has sglang: `python = "/venv/main/bin/python"`',
    ) == problem(sound(python=None), configured)


def test_no_sglang() -> None:
    """
    The error says where it was looked for, how to install it, and which other Python has it.
    """
    nowhere = sound(sglang_version=None, python="/usr/bin/python3", pythons=("/usr/bin/python3: no sglang",))
    message, hint = problem(nowhere)
    configured = structs.replace(HOST, python="/usr/bin/python3")

    assert "none of the Pythons found on `rtx` has sglang" == message
    assert hint.startswith("install it: `/usr/bin/python3 -m pip install sglang`")
    assert hint.endswith("looked at /usr/bin/python3: no sglang")
    assert (
        "sglang is not installed for the Python configured for `rtx`: /usr/bin/python3",
        'this one has it: `python = "/venv/main/bin/python"`',
    ) == problem(sound(sglang_version=None), configured)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"nvidia_smi": "absent", "gpus": ()}, "`rtx` has no GPU that can be seen: there is no nvidia-smi"),
        (
            {"nvidia_smi": "no answer within 8 s", "gpus": ()},
            "nvidia-smi does not work on `rtx`: no answer within 8 s",
        ),
        ({"gpus": ()}, "nvidia-smi shows no GPU on `rtx`"),
    ],
)
def test_no_gpu(other: dict[str, Any], message: str) -> None:
    """
    Absent, failing, hanging and empty are told apart; a server for the CPU needs none.
    """
    on_cpu = ServerSpec(name="q", flags={"model_path": "/workspace/q", "device": "cpu"})

    assert message == problem(sound(**other))[0]
    assert unfit(sound(**other), HOST, on_cpu) is None


def test_a_gpu_that_is_not_there() -> None:
    """
    The missing number is named, and what there is.
    """
    message, hint = problem(sound(), server=structs.replace(SERVER, gpus=(0, 2, 3)))

    assert "`rtx` has no GPU 2, 3" == message
    assert hint.startswith("it has 0 (NVIDIA RTX PRO 6000")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            ModelFacts("/workspace/q", is_local=True, exists=False),
            "the model is not on `rtx`: no folder /workspace/q",
        ),
        (
            ModelFacts("/workspace/q", is_local=True, exists=True),
            "the model's folder on `rtx` has no config.json: /workspace/q",
        ),
        (
            ModelFacts("/q", is_local=True, exists=True, config=CONFIG, missing_files=("a", "b", "c", "d")),
            "the model on `rtx` lacks 4 of its weight files: a, b, c …",
        ),
        (
            ModelFacts("/q", is_local=True, exists=True, config=CONFIG, damaged_files=("b.safetensors",)),
            "weight files of the model on `rtx` are cut short: b.safetensors",
        ),
        (
            ModelFacts("/q", is_local=True, exists=True, config=CONFIG, index_damaged=True),
            "the index of the model's weight files on `rtx` cannot be read: model.safetensors.index.json",
        ),
    ],
)
def test_no_model(model: ModelFacts, message: str) -> None:
    """
    An absent folder, one that is no model's, and one with gaps.
    """
    assert message == problem(sound(model=model))[0]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (CONFIG[:-3], "it is no JSON: Input data was truncated"),
        ("", "it is no JSON: Input data was truncated"),
        ("[1]", "it is no JSON object"),
        ('{"a": 1}', "it has neither `architectures` nor `model_type`"),
        ("\ufeff" + CONFIG, "it begins with a byte order mark, which Transformers does not read"),
    ],
    ids=["cut short", "empty", "a list", "of something else", "a byte order mark"],
)
def test_a_config_that_describes_no_model(config: str, why: str) -> None:
    """
    What Transformers cannot read is refused before a launch, and what it may read is left to it.
    """
    model = ModelFacts("/q", is_local=True, exists=True, config=config)
    new = structs.replace(model, config='{"model_type": "new"}')

    assert (
        f"config.json of the model on `rtx` describes no model: {why}",
        "download it again into /q",
    ) == problem(sound(model=model))
    assert unfit(sound(model=new), HOST, SERVER) is None


@pytest.mark.parametrize(
    ("load_format", "refused"),
    [("auto", True), ("safetensors", True), ("dummy", False), ("gguf", False), ("pt", False)],
)
def test_weights_that_are_not_read(load_format: str, refused: bool) -> None:
    """
    Damaged weights are refused exactly where they are to be read.
    """
    model = ModelFacts("/q", is_local=True, exists=True, config=CONFIG, damaged_files=("b.safetensors",))
    server = SERVER.with_flags(load_format=load_format)

    assert refused is (unfit(sound(model=model), HOST, server) is not None)


MTP = {"model_path": "/q", "speculative_algorithm": "NEXTN"}


@pytest.mark.parametrize(
    ("flags", "config", "has_mtp", "refused"),
    [
        (MTP, '{"mtp_num_hidden_layers": 1}', False, True),
        (MTP, '{"mtp_num_hidden_layers": 1}', True, False),
        (MTP, '{"mtp_num_hidden_layers": 1}', None, False),
        (MTP, '{"mtp_num_hidden_layers": 0}', False, False),
        ({**MTP, "speculative_draft_model_path": "/q"}, '{"mtp_num_hidden_layers": 1}', False, True),
        ({**MTP, "speculative_draft_model_path": "/draft"}, '{"mtp_num_hidden_layers": 1}', False, False),
        ({**MTP, "speculative_algorithm": "NGRAM"}, '{"mtp_num_hidden_layers": 1}', False, False),
        ({"model_path": "/q"}, '{"mtp_num_hidden_layers": 1}', False, False),
    ],
    ids=["none", "there", "untold", "no such model", "own path", "another draft", "no draft", "not asked"],
)
def test_no_tensors_for_the_draft(
    flags: dict[str, str], config: str, has_mtp: bool | None, *, refused: bool
) -> None:
    """
    A model that is to draft for itself and cannot would start, and accept nothing.
    """
    model = ModelFacts("/q", is_local=True, exists=True, config=config, has_mtp=has_mtp)
    server = ServerSpec(name="q", flags=dict(flags))
    facts_of_box = sound(model=model)
    if not refused:
        require_mtp(facts_of_box, HOST, server)
        return
    with pytest.raises(BoxUnfit, match="has no tensors for multi-token prediction") as caught:
        require_mtp(facts_of_box, HOST, server)

    assert "--allow-no-mtp" in caught.value.hint


def test_a_hub_name_is_left_to_the_hub() -> None:
    """
    What is not on the box yet can be downloaded.
    """
    for exists in (True, False):
        assert unfit(sound(model=ModelFacts("a/b", is_local=False, exists=exists)), HOST, SERVER) is None


def test_no_disk_and_no_work_directory() -> None:
    """
    A full disk is told from a folder that cannot be written.
    """
    full = sound(
        work_dir_writable=False, work_dir_problem="No space left on device: /root", disk_free_bytes=0
    )
    refused = sound(work_dir_writable=False, work_dir_problem="Permission denied: /root")

    assert "the disk of `rtx` is full: 0.00 GiB free at /root/.mtpdeploy" == problem(full)[0]
    assert (
        "the disk of `rtx` is full: 0.02 GiB free at /root/.mtpdeploy"
        == problem(sound(disk_free_bytes=20 * MIB))[0]
    )
    assert "the work directory on `rtx` cannot be written: Permission denied: /root" == problem(refused)[0]


def secret(**told: Any) -> Facts:
    """
    The facts of a box whose file of secrets is so.
    """
    given: dict[str, Any] = {"path": "/root/.mtpdeploy/env", "exists": True, "given": ("HF_TOKEN", "KEY")}
    return sound(secrets=SecretsFacts(**{**given, **told}))


WITH_SECRETS = structs.replace(SERVER, secrets=("HF_TOKEN", "KEY"))


@pytest.mark.parametrize(
    ("told", "message", "hint"),
    [
        (
            {"exists": False, "given": ("KEY",)},
            "`rtx` has no file of secrets at /root/.mtpdeploy/env, but HF_TOKEN is wanted",
            "write `HF_TOKEN='…'` there, one name a line, then `chmod 600 /root/.mtpdeploy/env`",
        ),
        (
            {"mode": 0o644},
            "the file of secrets on `rtx` can be read by others: /root/.mtpdeploy/env (mode 0644)",
            "on the box: chmod 600 /root/.mtpdeploy/env",
        ),
        (
            {"mine": False, "owner": "ann"},
            "the file of secrets on `rtx` cannot be used: /root/.mtpdeploy/env: it belongs to ann",
            "make it a file of root alone: `chown root` and `chmod 600` it",
        ),
        (
            {"problem": "Permission denied"},
            "the file of secrets on `rtx` cannot be used: /root/.mtpdeploy/env: Permission denied",
            "make it a file of root alone: `chown root` and `chmod 600` it",
        ),
        (
            {"line": 3},
            "the file of secrets on `rtx` is no text that sh can read: /root/.mtpdeploy/env, line 3",
            "see `sh -n /root/.mtpdeploy/env` there; a quote that is never closed is noticed further down",
        ),
        (
            {"given": ("HF_TOKEN",)},
            "the file of secrets on `rtx` gives no value to KEY: /root/.mtpdeploy/env",
            "add a line such as `KEY='…'`, or take the name out of `secrets` of the server",
        ),
    ],
)
def test_secrets_that_would_not_arrive(told: dict[str, Any], message: str, hint: str) -> None:
    """
    Each fault is one refusal that says what to do; a server without secrets is not concerned.
    """
    assert (message, hint) == problem(secret(**told), server=WITH_SECRETS)
    assert unfit(secret(**told), HOST, SERVER) is None


def test_secrets_that_arrive() -> None:
    """
    A file of our own with all names is fit, and so is a login that has them without any file.
    """
    assert unfit(secret(), HOST, WITH_SECRETS) is None
    assert unfit(secret(exists=False), HOST, WITH_SECRETS) is None


def test_what_has_to_be_mended_first_is_told_first() -> None:
    """
    With everything missing the order is Python, GPU, SGLang, model, disk.
    """
    steps: list[dict[str, Any]] = [
        {"python": "/p"}, {"nvidia_smi": "ok", "gpus": sound().gpus}, {"sglang_version": "0.5.9"},
        {"model": sound().model},
    ]  # fmt: skip
    found = sound(
        python=None,
        nvidia_smi="absent",
        gpus=(),
        sglang_version=None,
        model=ModelFacts("/q", is_local=True, exists=False),
        disk_free_bytes=0,
    )
    told = [problem(found)[0]]
    for step in steps:
        found = structs.replace(found, **step)
        told.append(problem(found)[0])

    assert ["Python", "GPU", "sglang", "model", "disk"] == [
        next(word for word in ("Python of", "GPU", "sglang", "model", "disk") if word in message).split()[0]
        for message in told
    ]
