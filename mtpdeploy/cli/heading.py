"""
What a report says of an ascent as a whole: how it ended, in a sentence, on which box, with what.
"""

from collections.abc import Iterable

from mtpdeploy.cli import tables
from mtpdeploy.cli.documents import exit_status
from mtpdeploy.core import events
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.units import counted, duration, gib
from mtpdeploy.deploy.dossier import Dossier
from mtpdeploy.errors import MTP_NOT_PROVEN, SERVER_NOT_UP, BoxLocked, BoxUnfit, ConfigError, ConnectionLost

STATUSES = {
    0: "the server is up",
    SERVER_NOT_UP: "the server did not come up",
    ConnectionLost.exit_status: "the box was lost",
    ConfigError.exit_status: "hosts.toml or the command line is wrong",
    BoxUnfit.exit_status: "the box lacks something, or something else is in the way",
    BoxLocked.exit_status: "somebody else is deploying there",
    MTP_NOT_PROVEN: "up, but MTP not proven",
}
"""What the exit status of an ascent means (README, exit statuses)."""


def exit_of(dossier: Dossier) -> int | None:
    """
    The status that the ascent left with, None where its end is not in the journal.
    """
    if dossier.error is not None:
        return dossier.error.exit_status
    return exit_status(dossier.ascent) if dossier.finished else None


def state_of(dossier: Dossier) -> str:
    """
    Whether the ascent is `ready`, `failed` or `open`: not proven, or its end is not in the journal.
    """
    if not dossier.finished:
        return "open" if dossier.error is None else "failed"
    if exit_of(dossier) == MTP_NOT_PROVEN:
        return "open"
    return "ready" if dossier.ascent.ready is not None else "failed"


def sentence_of(dossier: Dossier) -> str:
    """
    How the ascent ended.
    """
    ascent, tried = dossier.ascent, dossier.tried
    count = counted(len(tried), "attempt", "attempts")
    if dossier.error is not None:
        return f"Ended after {count} by an error: {dossier.error.error}."
    if not tried:
        return "Nothing was launched, as far as the journal tells."
    if not dossier.finished and tried[-1].outcome is None:
        return (
            f"Not finished: attempt {tried[-1].number} has no outcome in the journal yet. Its server goes on "
            "starting or serving on the box, or its client was ended; this report shows what there is so far."
        )
    if not dossier.finished:
        return f"Not finished: {count}, and no word in the journal on what came next."
    ready = ascent.ready
    if ready is None:
        return f"Did not come up after {count}: {ascent.stopped_because}."
    speculates = {True: "MTP is proven", False: "MTP is not proven", None: "MTP was not asked for"}
    report = ready.report
    said = speculates[report.mtp_proven if report else None]
    length = report.accept_length if report and report.mtp_proven else None
    said += f" with an accept length of {length:.2f}" if length is not None else ""
    return f"Ready at attempt {ready.attempt} after {duration(_whole(ascent))}; {said}."


def _whole(ascent: Ascent) -> float:
    first, last = ascent.outcomes[0], ascent.outcomes[-1]
    return max(last.seconds, last.started_at + last.seconds - first.started_at)


def begun_at(dossier: Dossier) -> float:
    """
    When the first attempt was launched, in seconds since 1970; 0 where nothing tells.
    """
    for tried in dossier.tried:
        if tried.record is not None:
            return tried.record.started_at
        if tried.outcome is not None:
            return tried.outcome.started_at
    return dossier.clients[0].at if dossier.clients else 0.0


def _survey(dossier: Dossier) -> Facts | None:
    return dossier.clients[0].facts if dossier.clients else None


def _surveyed(dossier: Dossier) -> events.Surveyed | None:
    told = (event for tried in dossier.tried for event in tried.happened)
    return next((event for event in told if isinstance(event, events.Surveyed)), None)


def is_simulated(dossier: Dossier) -> bool:
    """
    Whether the box is the built-in demo.
    """
    surveyed = _surveyed(dossier)
    return any(c.facts.simulated for c in dossier.clients) or (surveyed is not None and surveyed.simulated)


def heading(dossier: Dossier) -> Iterable[tuple[str, str]]:
    """
    What stands at the top: names and texts.
    """
    ascent, begun = dossier.ascent, begun_at(dossier)
    facts, surveyed = _survey(dossier), _surveyed(dossier)
    version = next((t.record.sglang_version for t in dossier.tried if t.record), "")
    yield "host", ascent.host
    yield "server", ascent.asked.name
    yield "purpose", ascent.purpose
    yield "model", str(ascent.asked.flags.get("model_path", ""))
    yield "SGLang", version or (facts.sglang_version or "" if facts else "")
    gpus = [f"{gpu.name}, {gib(gpu.total_bytes)}" for gpu in facts.gpus] if facts else []
    yield "GPU", "; ".join(gpus or (surveyed.gpus if surveyed else ()))
    yield "begun", _moment(begun)
    yield "attempts", str(len(dossier.tried))
    status = exit_of(dossier)
    yield (
        "exit status",
        "none yet" if status is None else f"{status}: {STATUSES.get(status, 'see the README')}",
    )
    yield "ascent", ascent.id


def _moment(begun: float) -> str:
    """
    A moment as UTC; a number that is none, from a damaged record, as it is.
    """
    try:
        return f"{tables.when(begun)} UTC" if begun else ""
    except (ValueError, OverflowError, OSError):
        return str(begun)


def environment(dossier: Dossier) -> Iterable[tuple[str, str]]:
    """
    What the box and the clients were like, as recorded.
    """
    versions = dict.fromkeys(client.version for client in dossier.clients)
    yield "mtpdeploy", ", ".join(versions) or "not recorded"
    yield "client", ", ".join(dict.fromkeys(client.name for client in dossier.clients))
    for client in dossier.clients[-1:]:
        host = client.host
        yield "address", host.address if host.simulated else f"{host.address}:{host.port or 22}"
        yield "login", host.user or client.facts.user
    facts = _survey(dossier)
    if facts is None:
        return
    yield "system", facts.system
    yield "Python", f"{facts.python or 'not found'} ({facts.python_version or 'version not known'})"
    yield "packages", ", ".join(f"{name} {version}" for name, version in facts.packages.items())
    yield "nvidia-smi", facts.nvidia_smi
    for gpu in facts.gpus:
        capability = f", compute capability {gpu.compute_capability}" if gpu.compute_capability else ""
        free = f"{gib(gpu.free_bytes)} of {gib(gpu.total_bytes)} free"
        yield f"GPU {gpu.index}", f"{gpu.name}, {free}{capability}"
    yield "host memory free", gib(facts.ram_free_bytes) if facts.ram_free_bytes else ""
    yield "its limit", gib(facts.ram_limit_bytes) if facts.ram_limit_bytes else ""
    yield "disk free", gib(facts.disk_free_bytes)
    yield "clock", f"{facts.clock_offset:+.1f} s against the client" if facts.clock_offset else ""
    yield "work directory", facts.work_dir
    if facts.model is not None and facts.model.weight_bytes:
        yield "weights on disk", gib(facts.model.weight_bytes)
