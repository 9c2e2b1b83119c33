"""
An example of every event, and what they speak of.
"""

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End, Milestone, Next, Stage, Verdict
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.foresight import Passed
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts, Gpu, Host, Process, ProcessId, RunRecord
from mtpdeploy.core.memory import Fit, Forecast, Line
from mtpdeploy.core.outcome import Ascent, Check, Outcome, Report
from mtpdeploy.core.patience import Kind, Sign
from mtpdeploy.core.proof import Generation, Power, Proof, Speculation, Speed
from mtpdeploy.core.server import ServerSpec

AT = 1_796_101_931.0

SIGNS = (
    Sign(Kind.COMPILERS, names=("cicc", "ninja")),
    Sign(Kind.READ, 1.2 * 2**30),
    Sign(Kind.MEMORY, 3 * 2**30),
    Sign(Kind.GPU_MEMORY, 340 * 2**20),
    Sign(Kind.CPU, 28.5),
    Sign(Kind.GPU, 97.0, watts=180.0),
)

ASKED = ServerSpec(
    name="qwen",
    flags={"model_path": "/models/Qwen3.6-27B", "port": 30000, "max_running_requests": 512},
    env={"SGLANG_ENABLE_SPEC_V2": "1"},
)
SERVER = ASKED.with_flags(max_running_requests=48)

RECORD = AttemptRecord(
    ascent="20261201-051211Z-qwen-0a1b2c3d",
    attempt=2,
    run="20261201-051215Z-qwen-0a1b2c3d-2",
    log="20261201-051215Z-attempt-2.log",
    started_at=AT,
    asked=ASKED,
    server=SERVER,
    rung="fewer-requests",
    sglang_version="0.5.9",
    client="ada@laptop",
)

VERDICT = Verdict(
    cause=Cause.OOM_KV_POOL,
    next=Next.CLIMB,
    proof="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    line=37,
    rank="TP0",
    remedy="Ask for fewer running requests.",
    figures={"mem_fraction_static": 0.8},
)

SPECULATION = Speculation(
    Proof.SPECULATING,
    accept_length=2.91,
    most=4,
    source="of our own requests",
    timed_by="the pieces of the answers, on the box",
    generations=(
        Generation("prose", 1, tokens=256, verify_steps=88, accept_length=2.9, tokens_per_second=63.4),
        Generation("code", 1, problem="no answer in time"),
    ),
    speeds=(
        Speed(
            1,
            63.4,
            63.4,
            Power(
                samples=8,
                gpus=1,
                watts=405.2,
                limit_watts=600.0,
                sm_mhz=2430.0,
                max_sm_mhz=3090.0,
                busy_percent=97.0,
                memory_used_bytes=76 << 30,
                held_back=(),
            ),
            63.4 / 405.2,
        ),
        Speed(4, 214.0, 53.9),
    ),
)

REPORT = Report(
    checks=(
        Check("answers", passed=True, detail="23 prompt tokens, 32 tokens in 0.06 s"),
        Check("speculates", passed=True, detail="accept length 2.91 (of our own request)"),
        Check("runs as asked", passed=None, detail="12 requests run at a time, 16 were asked for"),
    ),
    mtp_proven=True,
    accept_length=2.91,
    figures={"max_running_requests": 12.0},
    speculation=SPECULATION,
)

OUTCOME = Outcome(
    attempt=2,
    run=RECORD.run,
    server=SERVER,
    end=End.EXITED,
    stage=Stage.WEIGHTS_LOADED,
    started_at=AT,
    seconds=242.0,
    rung="fewer-requests",
    verdict=VERDICT,
    exit_status=137,
    log=f"/root/.mtpdeploy/runs/{RECORD.run}/{RECORD.log}",
)

READY = Outcome(
    attempt=3,
    run="20261201-051625Z-qwen-0a1b2c3d-3",
    server=SERVER.with_flags(max_running_requests=16),
    end=End.READY,
    stage=Stage.READY,
    started_at=AT + 250,
    seconds=301.5,
    rung="fewer-requests",
    report=REPORT,
    log="/root/.mtpdeploy/runs/20261201-051625Z-qwen-0a1b2c3d-3/20261201-051625Z-attempt-3.log",
)

ASCENT = Ascent(id=RECORD.ascent, host="box", asked=ASKED, outcomes=(OUTCOME, READY))

BOX = Host(name="box", address="203.0.113.20", port=19248, user="root")

FACTS = Facts(
    taken_at=AT,
    clock_offset=0.0,
    system="Linux 6.8.0-51-generic x86_64",
    user="root",
    home="/root",
    work_dir="/root/.mtpdeploy",
    work_dir_writable=True,
    disk_free_bytes=1 << 40,
    python="/opt/venv/bin/python",
    python_version="3.12.3",
    sglang_version="0.5.9",
    packages={"torch": "2.9.1"},
    nvidia_smi="ok",
    gpus=(Gpu(0, "GPU-0", "RTX PRO 6000", 102641958912, 101971066880, "12.0"),),
    gpu_holders=(),
    processes=(Process(ProcessId(1, "1"), 0, "root", "init"),),
    port_holders=(),
    runs=(RunRecord(name="r", attempt="{}"),),
    model=None,
    noise="/etc/profile: line 3: no such file",
)

FORECAST = Forecast(
    version="0.5.9",
    fit=Fit.FITS,
    reason="12 requests at a time, 131,098 tokens; 19.14 GiB are left for graphs and activations",
    total=96 << 30,
    free=94 << 30,
    lines=(Line("weights", 51 << 30), Line("free", 45 << 30)),
    mem_fraction_static=0.8,
)

EVENTS: tuple[AnyEvent, ...] = (
    events.Connected(AT, host="box", address="203.0.113.20:19248", seconds=0.4, simulated=True),
    events.Surveyed(
        AT,
        gpus=("RTX PRO 6000 (94.97 GiB of 95.59 GiB free)",),
        sglang_version="0.5.9",
        python="/opt/venv/bin/python",
        clock_offset=-61.0,
        seconds=0.5,
    ),
    events.InTheWay(
        AT,
        pid=4711,
        command="python -m sglang.launch_server",
        why="listens on port 30000",
        fate="ours, ended",
    ),
    events.Cleared(AT, ended=(4711, 4712), killed=(4713,), seconds=2.5),
    events.Planned(
        AT,
        forecast=FORECAST,
        rungs=("fewer-requests",),
        passed=(Passed(None, (), "512 requests need 293.62 GiB of draft states; 24.31 GiB are left"),),
    ),
    events.AttemptBegun(
        AT,
        record=RECORD,
        changed=("max_running_requests 512 → 48",),
        conceded=("max_running_requests 512 → 48",),
        reason="answers “memory left after the weights is too small for the pools”",
        command=(("python", "-m", "sglang.launch_server"), ("--port", "30000")),
        notes=("mamba_radix_cache_strategy is spelled --mamba-scheduler-strategy in SGLang 0.5.9",),
    ),
    events.Launched(AT, attempt=2, pid=4800, run_dir="/root/.mtpdeploy/runs/r", seconds=0.3),
    events.Following(AT, record=RECORD, offset=12345, stage="weights loaded"),
    events.LogLines(AT, attempt=2, first=7, lines=("Load weight begin.", "…")),
    events.Reached(
        AT,
        attempt=2,
        milestone=Milestone(Stage.KV_ALLOCATED, 16, "KV Cache is allocated.", {"kv_tokens": 131090.0}),
        seconds=65.0,
    ),
    events.Progress(AT, attempt=2, text="shards 3/14"),
    events.Quiet(AT, attempt=2, stage="memory pools ready", seconds=30.2, left=900.0, signs=SIGNS),
    events.LineLost(AT, since=AT - 15),
    events.LineBack(AT, seconds=17.0),
    events.Doomed(AT, attempt=2, line=37, text=VERDICT.proof),
    events.Foretold(
        AT, attempt=2, line=20, text="Load weight end.", reason="foretold by its own figures: no room"
    ),
    events.Compared(AT, attempt=3, rows=(("weights_gib", 51.05, 51.05), ("graphs_gib", 1.37, 0.82))),
    events.Proving(AT, attempt=3, by="ready line"),
    events.Verified(AT, attempt=3, report=REPORT),
    events.AttemptEnded(AT, outcome=OUTCOME),
    events.NextStep(AT, goes_on=True, rung="fewer-requests", reason="max_running_requests 48 → 16"),
    events.Note(AT, text="first contact with box: its key is now trusted"),
    events.Finished(AT, ascent=ASCENT),
    events.Failed(AT, error="there is no host `bx`", hint="the nearest right name is `box`", exit_status=2),
)
"""One of each kind, in the order in which they may come."""
