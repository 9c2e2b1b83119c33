"""
What the demo box is made of and how it misbehaves: one `settings.json` in the box's home.

Written by `mtpdeploy.demo.home.make_home`, read by every program of the box.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Dict, Optional, Tuple, Type, TypeVar

HOME_VARIABLE = "MTPDEPLOY_DEMO_HOME"
START_VARIABLE = "MTPDEPLOY_DEMO_START"

# The moments of a start at which hostility can be placed, in their order; every start passes them all, also
# that of the draft where there is none.
STAGES = (
    "import",
    "arguments",
    "init",
    "weights",
    "loaded",
    "pools",
    "backend",
    "graphs",
    "draft",
    "http",
    "warmup",
    "ready",
)

# Those before there is a scheduler, and the switches that need one.
BEFORE_SCHEDULER = ("import", "arguments")
ON_SCHEDULER = ("killed_at", "scheduler_dies_at")

T = TypeVar("T")


def stages_of(switch: str) -> Tuple[str, ...]:
    """The stages at which a switch of hostility can be placed."""
    return tuple(s for s in STAGES if switch not in ON_SCHEDULER or s not in BEFORE_SCHEDULER)


@dataclass(frozen=True)
class SimulatedGpu:
    """
    One card as the driver shows it. Sizes in MiB.

    `reserved_mib` is what CUDA never hands out (nvidia-smi's total less torch's); `context_mib` what the
    first CUDA context and the process groups take before any weight is loaded.
    """

    name: str
    total_mib: int
    reserved_mib: int
    context_mib: int
    compute_cap: str
    power_limit_w: int = 600
    max_sm_mhz: int = 3090
    uuid: str = "GPU-5d0e1d3a-51a1-4d17-9f7e-0123456789ab"
    driver: str = "580.95.05"
    cuda: str = "13.0"

    @property
    def torch_total_mib(self) -> int:
        """What torch reports as total capacity."""
        return self.total_mib - self.reserved_mib


# 97887 MiB in nvidia-smi, 94.97 GiB in torch, 94.32 GiB free before the weights: field reports.
RTX_PRO_6000 = SimulatedGpu(
    name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    total_mib=97887,
    reserved_mib=638,
    context_mib=666,
    compute_cap="12.0",
)
# 81559 MiB in nvidia-smi, 78.48 GiB free before the weights: the H100 log of sglang 0.5.18.
H100 = SimulatedGpu(
    name="NVIDIA H100 80GB HBM3",
    total_mib=81559,
    reserved_mib=551,
    context_mib=644,
    compute_cap="9.0",
    power_limit_w=700,
    max_sm_mhz=1980,
    uuid="GPU-8f1f2c11-6a52-4c55-8f5b-0123456789ab",
)


@dataclass(frozen=True)
class Hostile:
    """
    How the box misbehaves. Every switch is off by default; times are real seconds, not simulated ones.

    Stages are named in `STAGES`. `first_starts` limits all of it to the first so many server starts of the
    home (None: every start).
    """

    first_starts: Optional[int] = None
    die_at: str = ""  # SIGKILL of the whole family, no line
    killed_at: str = ""  # the kernel kills the scheduler alone, for memory (exit code -9)
    oom_kill_at: str = ""  # the kernel kills the main process, for memory, no line
    xid_at: str = ""  # the GPU reports a fault, and what runs on it fails
    xid: int = 79  # the fault of xid_at
    scheduler_dies_at: str = ""  # it is killed alone, and the main process never notices (as to 0.5.9)
    hang_at: str = ""
    spin_at: str = ""  # as hang_at, but burning CPU, as a rank does that waits in NCCL
    compile_at: str = ""  # slow there for slow_s: compilers run and compute …
    download_at: str = ""  # … or a file grows …
    pin_at: str = ""  # … or host memory fills
    slow_s: float = 60.0
    ignore_term: bool = False
    free_late_s: float = 0.0  # GPU memory of the dead comes back this much later
    foreign_gib: float = 0.0  # a process of somebody else holds this much of the card
    listener: str = ""  # "silent" or "http": a stranger listens on listener_port
    listener_port: int = 0
    stale_port: int = 0  # an older simulated server already serves on this port
    noise: bool = False  # invalid UTF-8, ANSI, a 300 kB line, progress bars, an API key
    dies_ready_s: float = 0.0  # the scheduler is killed so long after ready
    warmup_error: bool = False
    watchdog: str = ""  # "warmup" or "serving": the forward hangs there until the watchdog barks
    kernel_mismatch: bool = False
    accept_nothing: bool = False
    accept_length: float = 0.0  # tokens a verify yields on average (0: what the draft is good for)
    nonsense: bool = False  # every token is "!", as from logits that are not numbers
    empty_answers: bool = False  # tokens are counted, and none has a text
    nvidia_smi: str = ""  # "missing", "hangs" or "no-gpu"
    nvidia_smi_hang_s: float = 30.0
    fast_log_mb: float = 0.0  # this much log while the weights load …
    fast_log_mb_s: float = 0.0  # … at this rate (0: as fast as it goes)
    flood_mb: float = 0.0  # this much log at once after ready
    drops_variable: str = ""  # the image's own python takes this variable out of the environment
    escape: bool = False  # a grandchild in a session of its own survives the server


@dataclass(frozen=True)
class Settings:
    """Everything the box's programs read. `speed`: simulated seconds that pass in a real one."""

    version: str
    gpu: SimulatedGpu
    hostile: Hostile
    speed: float
    host_memory_gb: float = 515.0  # free host memory that psutil would report, in 10^9 bytes
    cgroup_gb: float = 0.0  # a container limit on host memory, 0 for none
    seed: int = 20261201

    def hostile_now(self) -> Hostile:
        """The hostility of this start: none any more once `first_starts` are over."""
        limit = self.hostile.first_starts
        if limit is not None and int(os.environ.get(START_VARIABLE, "1")) > limit:
            lasting = Hostile(nvidia_smi=self.hostile.nvidia_smi, free_late_s=self.hostile.free_late_s)
            return replace(lasting, nvidia_smi_hang_s=self.hostile.nvidia_smi_hang_s)
        return self.hostile


def _build(kind: Type[T], values: Dict[str, Any]) -> T:
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in values.items() if key in known})


def home() -> Path:
    """The box's home directory, from the environment that its wrapper scripts set."""
    return Path(os.environ[HOME_VARIABLE])


def load(directory: Optional[Path] = None) -> Settings:
    """The settings of a home (of this process's home by default)."""
    values = json.loads(((directory or home()) / "settings.json").read_text(encoding="utf-8"))
    values["gpu"] = _build(SimulatedGpu, values["gpu"])
    values["hostile"] = _build(Hostile, values["hostile"])
    return _build(Settings, values)


def save(settings: Settings, directory: Path) -> None:
    """Write the settings, replacing older ones at once."""
    new = directory / "settings.json.new"
    new.write_text(json.dumps(asdict(settings), indent=1), encoding="utf-8")
    new.replace(directory / "settings.json")
