"""
Where it runs: the host as configured, and the facts a box tells about itself.
"""

from msgspec import Struct


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """
    An entry of hosts.toml: how to reach a machine. Data; the open line to it is a `Box`.

    `alias` is set where the entry stands for a name in the user's OpenSSH configuration, whose
    settings then fill whatever is not given here. `forwards` are the `-L` parts of a pasted line,
    `ssh_options` its `-o` parts ("HostKeyAlias=gpu").
    `price_per_hour` is in whatever currency the user thinks in. `simulated` is the built-in demo box, whose
    `address` says what it is like: the name alone does not, since a real machine may have it.
    """

    name: str
    address: str
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None
    alias: str | None = None
    work_dir: str = "~/.mtpdeploy"
    python: str | None = None
    env: dict[str, str] = {}
    forwards: tuple[str, ...] = ()
    ssh_options: tuple[str, ...] = ()
    price_per_hour: float | None = None
    quirks: tuple[str, ...] = ()
    simulated: bool = False


class ProcessId(Struct, frozen=True):
    """
    Who a process is, beyond a reusable pid.

    `start` is the start time as the kernel counts it (field 22 of /proc/PID/stat in clock ticks,
    or what `ps -o lstart=` prints where there is no /proc); `boot` the boot id; `pid_ns` the inode
    of its pid namespace. All three are compared as text.
    """

    pid: int
    start: str
    boot: str = ""
    pid_ns: str = ""


class Process(Struct, frozen=True):
    """
    A living process on the box, as the survey saw it.

    `run` is the name of the run it belongs to, from the marker in its environment; `gpu_bytes` what
    nvidia-smi says it holds, by GPU UUID (0 where it holds some and the driver does not tell how much).
    `kind` is decided from the words of its command line: "server" (the main process of an SGLang
    server), "worker" (a process titled `sglang::…`), "helper" (a nameless child that Python's
    multiprocessing starts), "" anything else. `devices` is CUDA_VISIBLE_DEVICES of its environment.
    """

    id: ProcessId
    ppid: int
    user: str
    command: str
    run: str | None = None
    gpu_bytes: dict[str, int] = {}
    listens: tuple[int, ...] = ()
    pgid: int = 0
    kind: str = ""
    devices: str | None = None


class Gpu(Struct, frozen=True):
    """
    One card. `total_bytes` what it has, `free_bytes` what the driver reports free now, `used_bytes` what
    it reports used; what it keeps for itself is in neither. 0 where the driver does not tell.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    compute_capability: str = ""
    used_bytes: int = 0
    power_watts: float | None = None


class GpuHolder(Struct, frozen=True):
    """
    What nvidia-smi lists as holding memory of a GPU.

    The pid may be of another pid namespace (in a container nvidia-smi shows the host's); `visible` says
    that a process of that pid and that name is seen on the box. `used_bytes` is None where the driver
    does not tell.
    """

    gpu_uuid: str
    pid: int
    name: str
    used_bytes: int | None
    visible: bool = False


class ModelFacts(Struct, frozen=True):
    """
    What the box knows of the model: whether its folder is there, its config.json, its MTP tensors.

    `path` is where it was found, else the path or hub name asked for. `has_mtp` is None where neither a
    safetensors index nor the files' headers tell. `config` is the raw JSON text. `weight_bytes` are those of
    all tensors, `mtp_bytes` of those of multi-token prediction (None where no header tells).
    `missing_files` are weight files that the index names and the folder lacks, `damaged_files` those without
    a header or shorter than it says; `index_damaged` says that the index itself cannot be read. A hub name
    that `exists` is in the box's hub cache.
    """

    path: str
    is_local: bool
    exists: bool
    config: str | None = None
    has_mtp: bool | None = None
    weight_bytes: int | None = None
    mtp_bytes: int | None = None
    missing_files: tuple[str, ...] = ()
    damaged_files: tuple[str, ...] = ()
    index_damaged: bool = False


class SecretsFacts(Struct, frozen=True):
    """
    What the box tells of the file of secrets, never a value: whether it is there, whose it is, who may
    read it.

    `given` are the wanted names that it assigns, or that the login's own environment has. `problem` says
    why it cannot be read; `line` is where sh finds a fault in it (0: somewhere), None where there is none.
    """

    path: str
    exists: bool
    given: tuple[str, ...] = ()
    owner: str = ""
    mine: bool = True
    mode: int = 0o600
    problem: str = ""
    line: int | None = None


class RunRecord(Struct, frozen=True):
    """
    One run directory on the box, as its files tell: see `core.launch`.

    `attempt` is the text of attempt.json, `outcome` of outcome.json where there is one. `alive` says
    whether the recorded process lives (same start time and boot id, not a zombie); there is none where
    `proc` does not tell it. `launching` says that a launch was under way then. `family` are the other
    living processes of the run: below it, or with its marker in their environment.
    """

    name: str
    attempt: str
    process: ProcessId | None = None
    alive: bool = False
    exit_status: int | None = None
    log: str | None = None
    log_bytes: int = 0
    outcome: str | None = None
    family: tuple[ProcessId, ...] = ()
    stopped_by: str | None = None
    launching: bool = False


class Facts(Struct, frozen=True):
    """
    The answers of one survey, all taken in one round trip.

    `taken_at` is the box's clock in seconds since 1970 and `clock_offset` how far it runs ahead of
    ours (0 where it may be the same). `sglang_flags` is filled where the version is not one that
    mtpdeploy knows. `port_holders` are processes listening on the wanted port; pid 0 stands for one
    that could not be looked up.

    `python` is the interpreter that has sglang, else the one configured, else the first that works;
    `pythons` tells of each place that was looked at what was found there. `nvidia_smi` is "ok",
    "absent", or what went wrong. `work_dir_problem` says why the work directory cannot be written.
    `secrets` is None where no server with secrets was asked about. `runs_problem` says why the run
    directories could not be looked at ("" where they could).
    `ram_limit_bytes` is the cgroup's limit where there is one, and `noise` what the shell printed on
    standard error.
    """

    taken_at: float
    clock_offset: float
    system: str
    user: str
    home: str
    work_dir: str
    work_dir_writable: bool
    disk_free_bytes: int
    python: str | None
    python_version: str | None
    sglang_version: str | None
    packages: dict[str, str]
    nvidia_smi: str
    gpus: tuple[Gpu, ...]
    gpu_holders: tuple[GpuHolder, ...]
    processes: tuple[Process, ...]
    port_holders: tuple[int, ...]
    runs: tuple[RunRecord, ...]
    model: ModelFacts | None
    ram_free_bytes: int | None = None
    ram_limit_bytes: int | None = None
    sglang_flags: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    work_dir_problem: str = ""
    runs_problem: str = ""
    secrets: SecretsFacts | None = None
    simulated: bool = False
    noise: str = ""
