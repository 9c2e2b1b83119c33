"""The demo box's home directory: wrappers, simulated packages, models and settings, and its clean end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mtpdeploy.demo.site.sglang import kernel, processes, settings
from mtpdeploy.demo.site.sglang.release import release
from mtpdeploy.demo.site.sglang.settings import (
    H100,
    HOME_VARIABLE,
    RTX_PRO_6000,
    STAGES,
    Hostile,
    SimulatedGpu,
    stages_of,
)

__all__ = [
    "H100",
    "QWEN36_27B",
    "QWEN36_27B_WITHOUT_MTP",
    "RTX_PRO_6000",
    "STAGES",
    "DemoHome",
    "Hostile",
    "SimulatedGpu",
    "SimulatedModel",
    "make_home",
    "stages_of",
]

PLACED = tuple(item.name for item in fields(Hostile) if item.name.endswith("_at"))
"""The switches of hostility that name a stage."""

SITE = Path(__file__).parent / "site"
FLAGS = Path(__file__).parent.parent / "engines" / "sglang" / "flags.json"
SHELL = "/bin/sh"

# Qwen3.6-27B: shape from its config.json as quoted with the memory cases of the public reports.
QWEN36_TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 64,
    "full_attention_interval": 4,
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "mtp_num_hidden_layers": 1,
    "vocab_size": 248320,
    "dtype": "bfloat16",
}
QWEN36_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": QWEN36_TEXT,
    "vision_config": {"model_type": "qwen3_5", "depth": 27, "hidden_size": 1152, "patch_size": 16},
    "tie_word_embeddings": False,
}
# torch and CUDA packages that belong to a release (their wheels' requirements): what a survey may ask for.
PACKAGES = (
    (
        (0, 5, 6),
        {"torch": "2.9.1", "sgl-kernel": "0.3.21", "flashinfer-python": "0.6.3", "transformers": "4.57.1"},
    ),
    (
        (0, 5, 10),
        {"torch": "2.9.1", "sglang-kernel": "0.4.1", "flashinfer-python": "0.6.7", "transformers": "5.3.0"},
    ),
    (
        (0, 5, 11),
        {"torch": "2.11.0", "sglang-kernel": "0.4.4", "flashinfer-python": "0.6.12", "transformers": "5.8.1"},
    ),
    (
        (0, 5, 17),
        {
            "torch": "2.13.0",
            "sglang-kernel": "0.4.7",
            "flashinfer-python": "0.6.18",
            "transformers": "5.12.1",
        },
    ),
    (
        (0, 5, 23),
        {
            "torch": "2.14.1",
            "sglang-kernel": "0.4.10",
            "flashinfer-python": "0.7.2",
            "transformers": "5.19.0",
        },
    ),
)


@dataclass(frozen=True)
class SimulatedModel:
    """
    A model directory to lay out: a real config.json beside shards without data.

    `weights_gib` is what SGLang's log shows for the target, `draft_gib` for the draft's gross load, of which
    `given_back_gib` is freed once it shares the target's embedding and head (public logs of the 27B).
    """

    name: str
    config: dict[str, Any]
    weights_gib: float = 51.05
    draft_gib: float = 5.53
    given_back_gib: float = 4.7
    shards: int = 14
    mtp: bool = True


QWEN36_27B = SimulatedModel("Qwen3.6-27B", QWEN36_CONFIG)
QWEN36_27B_WITHOUT_MTP = SimulatedModel("Qwen3.6-27B-without-mtp", QWEN36_CONFIG, mtp=False)


@dataclass(frozen=True)
class DemoHome:
    """A laid-out home: where things are, how to start processes in it, and how to end them all."""

    path: Path
    python: str
    children: list[subprocess.Popen[bytes]] = field(default_factory=list, compare=False, repr=False)

    @property
    def bin(self) -> Path:
        """The directory of wrapper scripts, to be first on PATH."""
        return self.path / "bin"

    @property
    def models(self) -> Path:
        """The directory of model directories."""
        return self.path / "models"

    def model(self, name: str = QWEN36_27B.name) -> Path:
        """One model directory."""
        return self.models / name

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a login on this box. The variable with the home's path marks its processes."""
        return {
            "HOME": str(self.path),
            HOME_VARIABLE: str(self.path),
            "PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "USER": "root",
            "LOGNAME": "root",
            "SHELL": SHELL,
            "LANG": "C.UTF-8",
            **kernel.variables(self.path),
        }

    def settings(self) -> settings.Settings:
        """The settings now in force."""
        return settings.load(self.path)

    def change(self, **fields: Any) -> None:  # noqa: ANN401  # the fields of Settings
        """Change settings while the box runs; a server already started keeps what it has read."""
        settings.save(replace(self.settings(), **fields), self.path)

    def start(self, *argv: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a program of the box in a session of its own, its output in `log` (none: thrown away)."""
        with (log or Path(os.devnull)).open("ab") as out:
            child = subprocess.Popen(
                [str(self.bin / argv[0]), *argv[1:]],
                cwd=self.path,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def start_server(self, *flags: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        """Start the simulated SGLang with these flags."""
        return self.start("python", "-m", "sglang.launch_server", *flags, log=log)

    def start_stranger(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start `memory GIB` or `listen KIND PORT` as somebody else's process."""
        return self.start("python", "-m", "sglang.strangers", *argv)

    def living(self) -> list[tuple[int, str, str]]:
        """(pid, start, role) of every process of this home that still lives."""
        found = {pid: (pid, start, role) for pid, start, role in processes.marked(self.path, HOME_VARIABLE)}
        found.update({entry[0]: entry for entry in processes.recorded(self.path)})
        return sorted(found.values())

    def clean(self, *, seconds: float = 10.0) -> None:
        """End every process of this home by identity, remove it. TimeoutError if one will not go."""
        until = time.monotonic() + seconds
        while left := self.living():
            for pid, start, _ in left:
                processes.end(pid, start)
            if time.monotonic() > until:
                raise TimeoutError(f"processes of the demo box are still alive: {left}")
            time.sleep(0.005)
        for child in self.children:
            child.wait()
        shutil.rmtree(self.path, ignore_errors=True)


def _script(path: Path, *lines: str) -> None:
    path.write_text("\n".join((f"#!{SHELL}", *lines, "")), encoding="utf-8")
    path.chmod(0o755)


def _wrappers(home: DemoHome, *, nvidia_smi: bool, dropped: str) -> None:
    quoted = "'" + home.python.replace("'", "'\\''") + "'"
    where = "'" + str(home.path).replace("'", "'\\''") + "'"
    exports = (
        f"export {HOME_VARIABLE}={where}",
        f"export PYTHONPATH={where}/site${{PYTHONPATH:+:$PYTHONPATH}}",
    )
    drops = (f"unset {dropped}",) if dropped else ()
    for name in ("python", "python3"):
        _script(home.bin / name, *exports, *drops, f'exec {quoted} "$@"')
    _script(home.bin / "sglang", *exports, "shift", f'exec {quoted} -m sglang.launch_server "$@"')
    if nvidia_smi:
        _script(home.bin / "nvidia-smi", *exports, f'exec {quoted} -S -m sglang.nvidia_smi "$@"')


def _site(home: DemoHome, version: str) -> None:
    site = home.path / "site"
    site.mkdir()
    (site / "sglang").symlink_to(SITE / "sglang")
    if FLAGS.is_file():
        shutil.copyfile(FLAGS, site / "flags.json")
    packages = {"sglang": version}
    for since, belonging in PACKAGES:
        if release(version) >= since:
            packages = {"sglang": version, **belonging}
    for name, number in packages.items():
        info = site / f"{name.replace('-', '_')}-{number}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n", encoding="utf-8"
        )


def _model(directory: Path, model: SimulatedModel) -> None:
    """A checkpoint without its weights: shards with real headers and sparse data, and their index."""
    directory.mkdir(parents=True)
    names = [f"model.language_model.layers.{n}.input_layernorm.weight" for n in range(64)]
    names += ["model.language_model.embed_tokens.weight", "lm_head.weight"]
    sizes = dict.fromkeys(names, _share(model.weights_gib, len(names)))
    if model.mtp:
        # A checkpoint holds the draft's own layers, too, but its two tables of two bytes an entry only once.
        text = model.config.get("text_config", model.config)
        own = max(0.0, model.draft_gib - 4 * text["vocab_size"] * text["hidden_size"] / 2**30)
        drafts = [f"mtp.{part}.weight" for part in ("fc", "norm", "layers.0.self_attn.q_proj")]
        sizes.update(dict.fromkeys(drafts, _share(own, len(drafts))))
    shards = [f"model-{n:05d}-of-{model.shards:05d}.safetensors" for n in range(1, model.shards + 1)]
    places = {name: shards[n * len(shards) // len(sizes)] for n, name in enumerate(sizes)}
    for shard in shards:
        _shard(directory / shard, {name: sizes[name] for name, place in places.items() if place == shard})
    index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": places}
    weights = {key: asdict(model)[key] for key in ("weights_gib", "draft_gib", "given_back_gib")}
    documents = {
        "config.json": model.config,
        "generation_config.json": {"do_sample": True, "temperature": 0.7, "top_p": 0.8},
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 262144},
        "model.safetensors.index.json": index,
        "simulated.json": weights,
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document, indent=1), encoding="utf-8")


def _share(gib: float, parts: int) -> int:
    """The bytes of one of so many equal tensors of two-byte numbers."""
    return 2 * int(gib * 2**29 / parts)


def _shard(path: Path, sizes: dict[str, int]) -> None:
    """A safetensors file as large as the real one to `ls`, of which only the header is on the disk."""
    header, end = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def make_home(
    directory: Path,
    *,
    sglang_version: str = "0.5.9",
    gpu: SimulatedGpu = RTX_PRO_6000,
    hostile: Hostile | None = None,
    models: Sequence[SimulatedModel] = (QWEN36_27B, QWEN36_27B_WITHOUT_MTP),
    speed: float = 30.0,
    python: str = sys.executable,
    host_memory_gb: float = 515.0,
    cgroup_gb: float = 0.0,
) -> DemoHome:
    """
    Lay out a demo box in an empty or absent directory and start what its hostility calls for.

    Args:
        directory: the box's HOME.
        sglang_version: the release to simulate, 0.5.6 to 0.5.23.
        gpu: its one card.
        hostile: how it misbehaves; not at all by default.
        models: what lies in `models/`.
        speed: simulated seconds in a real one; about 70 of them make a start (30: two to three seconds).
        python: the interpreter that runs the box's programs, 3.9 or later.
        host_memory_gb: free host memory, in 10^9 bytes.
        cgroup_gb: a container's limit on host memory (0: none), which SGLang sees from 0.5.21 on.

    Returns:
        The home. Call `clean` when done with it.

    """
    hostile = hostile or Hostile()
    for place, stage in ((place, getattr(hostile, place)) for place in PLACED):
        if stage and stage not in stages_of(place):
            raise ValueError(f"no such stage: {stage} (one of {', '.join(stages_of(place))})")
    directory.mkdir(parents=True, exist_ok=True)
    home = DemoHome(directory.resolve(), python)
    home.bin.mkdir()
    for name in ("ledger", "processes"):
        (home.path / name).mkdir()
    made = settings.Settings(
        sglang_version, gpu, hostile, speed, host_memory_gb=host_memory_gb, cgroup_gb=cgroup_gb
    )
    settings.save(made, home.path)
    kernel.lay_out(home.path, int(host_memory_gb * 1e9), int((cgroup_gb or host_memory_gb) * 1e9))
    _wrappers(home, nvidia_smi=hostile.nvidia_smi != "missing", dropped=hostile.drops_variable)
    _site(home, sglang_version)
    for model in models:
        _model(home.models / model.name, model)
    _strangers(home, hostile)
    return home


def _strangers(home: DemoHome, hostile: Hostile) -> None:
    if hostile.foreign_gib:
        home.start_stranger("memory", str(hostile.foreign_gib))
    if hostile.listener:
        home.start_stranger("listen", hostile.listener, str(hostile.listener_port))
    if hostile.stale_port:
        flags = [
            "--attention-backend",
            "triton",
            "--mem-fraction-static",
            "0.7",
            "--max-running-requests",
            "4",
        ]
        flags += ["--port", str(hostile.stale_port), "--model-path", str(home.model())]
        home.start_server(*flags, log=home.path / "stale.log")
