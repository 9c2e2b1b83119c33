"""
What a box tells about itself: asked in one round trip, parsed into `Facts`.
"""

import time
from base64 import b64decode
from collections.abc import Collection, Mapping
from secrets import token_hex
from typing import Any

from msgspec import ValidationError, convert

from mtpdeploy import onbox
from mtpdeploy.core.foreign import decoded, unpacked
from mtpdeploy.core.launch import SECRETS_FILE, shell_path
from mtpdeploy.core.machine import (
    Facts,
    Gpu,
    GpuHolder,
    Host,
    ModelFacts,
    Process,
    RunRecord,
    SecretsFacts,
)
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import MIB
from mtpdeploy.errors import CommandFailed
from mtpdeploy.remote.box import Box
from mtpdeploy.remote.fitness import unfit

__all__ = ["parse", "read", "survey", "unfit"]

NVIDIA_SMI_LIMIT = 8.0
"""Seconds for nvidia-smi: with persistence mode off the driver is loaded for every call, 1-3 s a GPU."""

LIMIT = 40.0
"""Seconds for the whole survey: nvidia-smi and the interpreters have limits of their own within it."""

LONGEST_SURVEY = 64 << 20
"""Bytes of an unpacked answer: fifty runs with their records have less than one hundredth."""

NEWEST_RUNS = 50
"""Run directories that are read; older ones are history that the client's journal keeps."""

PYTHONS = (
    "python3",
    "/venv/main/bin/python",
    "/workspace/venv/bin/python",
    "/workspace/.venv/bin/python",
    "/opt/venv/bin/python",
    "~/venv/bin/python",
    "~/.venv/bin/python",
    "/opt/conda/bin/python",
    "~/miniconda3/bin/python",
    "~/anaconda3/bin/python",
    "~/miniforge3/bin/python",
    "python",
)
"""Where rented boxes have their Python: on PATH, in Vast's, RunPod's and the usual virtual environments."""

FRONT = """
say() { printf '%s=%s\\n' "$1" "$2"; }
say system "$(uname -srm 2>/dev/null)"
say user "$(id -un 2>/dev/null || id -u)"
say home "$HOME"
answered=
for place in "$@"; do
  case $place in
    */*) found=$place ;;
    *) found=$(command -v "$place" 2>/dev/null) ;;
  esac
  if [ -z "$found" ] || ! [ -x "$found" ]; then
    say missing "$place"
  elif program | "$found" -I -; then
    answered=yes
    break
  else
    say unusable "$found"
  fi
done
[ -n "$answered" ] || say python none
"""
"""
Asks for what needs no Python, then runs `program` with the first interpreter that can; works in any sh.

Each of its lines reads `name=value`; the program's answer is one JSON document, last of all.
"""


NO_ANSWER = "is the box out of memory or disk, and does `python3 -V` work there? if it does, please report it"


def survey(
    box: Box,
    *,
    host: Host,
    server: ServerSpec | None,
    known_versions: Collection[str] | None = None,
    nvidia_smi_limit: float = NVIDIA_SMI_LIMIT,
) -> Facts:
    """
    Ask a box everything that a deployment needs to know, in one round trip.

    Without `known_versions` the flags are read from the source only of a build without a release number.

    Raises:
        ConnectionLost: the line to the box broke, or the box did not answer in time.
        CommandFailed: the answer cannot be understood.
    """
    request = {
        "work_dir": host.work_dir,
        "configured": host.python,
        "pythons": list(PYTHONS),
        "env": {**host.env, **(server.env if server else {})},
        "model": server.model_path if server else None,
        "port": server.port if server else None,
        "known_versions": None if known_versions is None else sorted(known_versions),
        "runs": NEWEST_RUNS,
        "nvidia_smi_limit": nvidia_smi_limit,
        "secrets_file": SECRETS_FILE,
        "secrets": list(server.secrets) if server else [],
    }
    sent = time.time()
    result = box.run(script(request), limit=LIMIT)
    received = time.time()
    noise = result.err.decode("utf-8", "replace")[-2000:]
    answer = read(result.out, host.name, noise)
    try:
        return parse(answer, sent=sent, received=received, noise=noise)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise CommandFailed(
            f"the survey of `{host.name}` tells something else than was asked: {error!r:.300}", hint=NO_ANSWER
        ) from error


def script(request: Mapping[str, Any]) -> str:
    """
    The text that asks: places of an interpreter, the program, the front.

    The variables of host and server are in the request only. Exported here they would change the tools that
    ask: a PATH without `id`, a library that the box's own Python does not bear.
    """
    source = onbox.compose("survey", request)
    mark = f"EOF-{token_hex(8)}"
    places = ([request["configured"]] if request["configured"] else []) + list(request["pythons"])
    places += [f"{folder}/python3" for folder in request["env"].get("PATH", "").split(":") if folder]
    words = " ".join(shell_path(place) for place in places)
    program = f"program() {{\ncat <<'{mark}'\n{source}{mark}\n}}\n"
    return f"(\nset -- {words}\n{program}{FRONT})\n"


def read(out: bytes, host: str, noise: str = "") -> dict[str, Any]:
    """
    The answer as one document: the lines of the front under "front", and what the program said.

    Raises:
        CommandFailed: neither of them can be understood.
    """
    front: dict[str, list[str]] = {}
    answer: dict[str, Any] = {}
    for line in out.splitlines():
        if line.startswith(b"{"):
            answer = _document(line, host)
        else:
            name, _, value = line.decode("utf-8", "replace").partition("=")
            front.setdefault(name, []).append(value)
    if "system" not in front:
        raise CommandFailed(
            f"`{host}` was asked what it is and answered: {out[:300]!r} {noise[-300:]!r}", hint=NO_ANSWER
        )
    if not answer and "python" not in front:
        raise CommandFailed(
            f"the survey of `{host}` ended without an answer: {noise[-500:]!r}", hint=NO_ANSWER
        )
    return {**answer, "front": front}


def _document(line: bytes, host: str) -> dict[str, Any]:
    try:
        answer = decoded(line, dict[str, Any])
        if "zlib" in answer:
            answer = decoded(unpacked(b64decode(str(answer["zlib"])), LONGEST_SURVEY), dict[str, Any])
    except ValueError as error:
        raise CommandFailed(f"the survey of `{host}` cannot be read: {error}", hint=NO_ANSWER) from error
    return answer


def parse(answer: dict[str, Any], *, sent: float = 0.0, received: float = 0.0, noise: str = "") -> Facts:
    """
    Make facts of an answer. `sent` and `received` are our clock before and after it was asked for.

    Where the box has no Python that could answer, only what the shell told is there.
    """
    front = answer["front"]
    python = answer.get("python") or {}
    work_dir = answer.get("work_dir") or {"path": "", "problem": "not looked at", "free": 0}
    nvidia_smi = answer.get("nvidia_smi") or {"state": "not asked"}
    crowd = answer.get("crowd") or {"processes": [], "port_holders": []}
    memory = answer.get("memory") or {}
    holders = gpu_holders(nvidia_smi.get("holders", ""), crowd["processes"])
    now = answer.get("now", received)
    return Facts(
        taken_at=now,
        clock_offset=_offset(now - received, answer.get("begun", sent) - sent),
        system=front["system"][0],
        user=answer.get("user") or _first(front, "user"),
        home=answer.get("home") or _first(front, "home"),
        work_dir=work_dir["path"],
        work_dir_writable=not work_dir["problem"],
        work_dir_problem=work_dir["problem"],
        disk_free_bytes=work_dir["free"],
        python=python.get("path"),
        python_version=python.get("version"),
        pythons=tuple(python.get("looked") or _looked(front)),
        sglang_version=python.get("packages", {}).get("sglang"),
        sglang_flags=tuple(python.get("flags", ())),
        packages=python.get("packages", {}),
        nvidia_smi=nvidia_smi["state"],
        gpus=gpus(nvidia_smi.get("gpus", "")),
        gpu_holders=holders,
        processes=tuple(_process(told, holders) for told in crowd["processes"]),
        port_holders=tuple(crowd["port_holders"]),
        runs=tuple(_run(told) for told in answer.get("runs", [])),
        runs_problem=answer.get("runs_problem", ""),
        model=convert(answer["model"], ModelFacts) if answer.get("model") else None,
        secrets=convert(answer["secrets"], SecretsFacts) if answer.get("secrets") else None,
        ram_free_bytes=memory.get("free"),
        ram_limit_bytes=memory.get("limit"),
        simulated=answer.get("simulated", False),
        noise=noise,
    )


def _offset(least: float, most: float) -> float:
    """
    How far the box's clock runs ahead, as far as that is certain: 0 where both clocks may be the same.
    """
    return min(max(0.0, least), most) if least <= most else (least + most) / 2


def gpus(table: str) -> tuple[Gpu, ...]:
    """
    nvidia-smi's table of cards; what it calls N/A is 0, "" or None. A line that is none is passed over.
    """
    found = []
    for fields in _rows(table, 8):
        index, uuid, name, total, free, used, capability, power = fields
        if index.isdigit():
            card = Gpu(
                index=int(index),
                uuid=uuid,
                name=name,
                total_bytes=_mib(total) or 0,
                free_bytes=_mib(free) or 0,
                used_bytes=_mib(used) or 0,
                compute_capability=capability if capability[:1].isdigit() else "",
                power_watts=_number(power),
            )
            found.append(card)
    return tuple(found)


def gpu_holders(table: str, processes: list[dict[str, Any]]) -> tuple[GpuHolder, ...]:
    """
    nvidia-smi's table of processes, each marked as seen on the box or not.

    In a container the pids are the host's: one that happens to be a pid here as well is another process
    unless the name fits too.
    """
    commands = {told["id"]["pid"]: told["command"] for told in processes}
    found = []
    for uuid, pid, used, name in _rows(table, 4):
        if pid.isdigit():
            command = commands.get(int(pid))
            visible = command is not None and _same_program(name, command)
            found.append(
                GpuHolder(gpu_uuid=uuid, pid=int(pid), name=name, used_bytes=_mib(used), visible=visible)
            )
    return tuple(found)


def _same_program(name: str, command: str) -> bool:
    """
    Whether nvidia-smi's name of a process (its program, or its title, maybe cut short) fits a command line.
    """
    shown = name.strip().removesuffix("...")
    first = command.split(" ", 1)[0]
    return bool(shown) and (command.startswith(shown) or first.rpartition("/")[2] == shown.rpartition("/")[2])


def _process(told: dict[str, Any], holders: tuple[GpuHolder, ...]) -> Process:
    mine = [holder for holder in holders if holder.visible and holder.pid == told["id"]["pid"]]
    held: dict[str, int] = {}
    for holder in mine:
        held[holder.gpu_uuid] = held.get(holder.gpu_uuid, 0) + (holder.used_bytes or 0)
    command = " ".join(str(told["command"]).split())
    return convert({**told, "command": command, "gpu_bytes": held}, Process)


def _run(told: dict[str, Any]) -> RunRecord:
    try:
        return convert(told, RunRecord)
    except ValidationError:
        return RunRecord(name=str(told["name"]), attempt=str(told.get("attempt", "")))


def _rows(table: str, columns: int) -> list[list[str]]:
    rows = [[field.strip() for field in line.split(",", columns - 1)] for line in table.splitlines()]
    return [row for row in rows if len(row) == columns]


def _mib(text: str) -> int | None:
    number = _number(text)
    return None if number is None else int(number * MIB)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _looked(front: dict[str, list[str]]) -> list[str]:
    missing = [f"{place}: not there" for place in front.get("missing", [])]
    return missing + [f"{place}: does not run the survey" for place in front.get("unusable", [])]


def _first(front: dict[str, list[str]], name: str) -> str:
    return front.get(name, [""])[0]
