"""
What `up` takes for itself: everything but the server's start and the proof's requests.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from msgspec import Struct, json

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.deploy import attempt, climb, ground
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.remote import lock
from mtpdeploy.remote.follow import Follower
from mtpdeploy.remote.run import Run
from tests.bench import naive
from tests.bench.figures import Beside, Figure, of_samples
from tests.bench.probe import Span, probing, total
from tests.bench.rig import DELAY, Rig, wire
from tests.bench.witness import ReadyWitness

NAME = "up-own-time"
SAMPLES = 11
PROCESSES = 7
TARGET_MS = 1500.0
TARGET_TRIPS = 8
PROBED = (
    (ground, "survey"),
    (lock, "take"),
    (climb, "clear_way"),
    (attempt, "render_files"),
    (Journal, "attempt"),
    (Run, "create_and_launch"),
    (attempt, "write_outcome"),
    (Follower, "_identified"),
    (Follower, "close"),
    (lock, "release"),
)


class Told(Struct):
    """
    When each kind of event came, and how many answers had been awaited by then.
    """

    moments: dict[str, float] = {}
    trips: dict[str, int] = {}


class Own(Struct, frozen=True):
    """
    One `up`: milliseconds of its own, answers awaited, and milliseconds by step.
    """

    milliseconds: float
    trips: int
    steps: dict[str, float]


def measure(folder: Path) -> Iterator[Figure]:
    """
    In this process step by step, as a process of its own, and beside the way people write it.
    """
    on_loopback: Beside | None = None
    with Rig(folder / "rig") as rig:
        for delay in (0.0, DELAY):
            with wire(rig, delay) as port:
                old = 1000 * median(naive.own_time(rig, port, phase) for phase in naive.PHASES)
                runs = [one_up(rig, port) for _ in range(SAMPLES)]
            where = f"{1000 * delay:.0f} ms of delay" if delay else "loopback"
            beside: Beside = {"baseline": old, "baseline_is": "fabric: put, run nohup, tail -n 50 every 3 s"}
            beside["target"] = None if delay else TARGET_MS
            on_loopback = on_loopback or beside
            yield of_samples(NAME, f"own time, {where}", [own.milliseconds for own in runs], **beside)
            trips = [float(own.trips) for own in runs]
            yield of_samples(
                NAME, f"round trips after the connection, {where}", trips, "", target=TARGET_TRIPS
            )
            for step in runs[0].steps:
                yield of_samples(NAME, f"  {step}, {where}", [own.steps[step] for own in runs])
        processes = [1000 * process_time(rig) for _ in range(PROCESSES)]
        name = "own time of `mtpdeploy up` as a process, imports and exit included, loopback"
        yield of_samples(NAME, name, processes, **(on_loopback or {}))


def one_up(rig: Rig, port: int) -> Own:
    """
    One `up` over a connection of its own; the server is ended afterwards.
    """
    told = Told()
    spans: list[Span] = []
    with ReadyWitness(rig.home.path) as witness, rig.box(port) as box, probing(spans, *PROBED):

        def emit(event: AnyEvent) -> None:
            name = type(event).__name__
            if isinstance(event, events.Reached):
                name = "Ready" if event.milestone.stage is Stage.READY else name
            told.moments[name] = time.perf_counter()
            told.trips[name] = box.round_trips

        begun = time.perf_counter()
        box.connect()
        connected = time.perf_counter()
        ascent = rig.up(box, emit)
        ended = time.perf_counter()
        box.close()
        closed = time.perf_counter()
        trips = box.round_trips - (told.trips["Verified"] - told.trips["Proving"])
        written = witness.seen().counter
    assert ascent.ready is not None
    rig.stop_server()
    at = told.moments
    identified = next(span for span in spans if span.name == "_identified")
    steps = {
        "connect": connected - begun,
        "survey": total(spans, "survey"),
        "lock": total(spans, "take"),
        "judge what is in the way": total(spans, "clear_way"),
        "render": total(spans, "render_files"),
        "journal": total(spans, "attempt"),
        "launch": total(spans, "create_and_launch"),
        "until the log is followed (beside the server's start)": identified.begun - at["Launched"],
        "ready line to event": at["Ready"] - written,
        "event to proof (whose is the listener?)": at["Proving"] - at["Ready"],
        "end of following": total(spans, "close"),
        "outcome": total(spans, "write_outcome"),
        "release": total(spans, "release"),
        "close": closed - ended,
    }
    own = (at["Launched"] - begun) + (at["Proving"] - written) + (closed - at["Verified"])
    return Own(1000 * own, trips, {name: 1000 * seconds for name, seconds in steps.items()})


def process_time(rig: Rig) -> float:
    """
    Seconds of a whole process `mtpdeploy up`, start and imports included, less the server's and the proof's.
    """
    config = _configuration(rig)
    words = [sys.executable, "-m", "mtpdeploy", "up", "qwen", "--on", "here", "--config", str(config)]
    environment = {**os.environ, "MTPDEPLOY_STATE_DIR": str(rig.state), "HOME": str(rig.folder)}
    with ReadyWitness(rig.home.path) as witness:
        begun = time.perf_counter()
        done = subprocess.run(
            [*words, "--json-events"],
            env=environment,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - begun
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        written = witness.seen().wall
    rig.stop_server()
    at = {told["event"]: float(told["at"]) for told in map(json.decode, done.stdout.splitlines())}
    return seconds - (written - at["launched"]) - (at["verified"] - at["proving"])


def _configuration(rig: Rig) -> Path:
    host, server = rig.host(), rig.server()
    flags = "\n".join(f"{name} = {json.encode(value).decode()}" for name, value in server.flags.items())
    path = rig.folder / "hosts.toml"
    path.write_text(
        f"""
[hosts.here]
address = "127.0.0.1"
port = {host.port}
identity_file = "{host.identity_file}"
python = "{host.python}"

[servers.qwen]
{flags}
env = {{ SGLANG_ENABLE_SPEC_V2 = "1" }}
"""
    )
    return path
