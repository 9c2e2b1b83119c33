"""
Asking a box what it can tell of a run that has ended, in one round trip.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from mtpdeploy.core.aftermath import Aftermath
from mtpdeploy.errors import CommandFailed
from mtpdeploy.remote.box import Box
from mtpdeploy.remote.facts import gpu_holders, gpus
from mtpdeploy.remote.run import REPORT, Run, ask

NVIDIA_SMI_LIMIT = 5.0
"""Seconds for nvidia-smi; one that hangs says as much about the card (remote/facts.py: 1-3 s a GPU)."""

LIMIT = 20.0
"""Seconds for the answer: nvidia-smi (5), the disks (3) and the kernel's log (2) within it, and the way."""


def look_after(box: Box, run: Run, *, model: str, env: Mapping[str, str]) -> Aftermath:
    """
    Ask for memory events, kernel's log, disks and GPUs; `env` are the variables given to the server.

    Raises:
        BoxUnfit: no Python, or the program was killed.
        CommandFailed: it failed otherwise, or its answer cannot be understood.
        ConnectionLost: the line broke, or no answer came in time; it may be asked again.
    """
    request = {
        "run_dir": run.directory,
        "work_dir": run.work_dir,
        "model": model,
        "env": dict(env),
        "nvidia_smi_limit": NVIDIA_SMI_LIMIT,
    }
    answer = ask(box, "aftermath", request, run.python, limit=LIMIT)
    try:
        return parse(answer)
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise CommandFailed(
            f"`aftermath` on {box.host.name} answers nonsense: {error}", hint=REPORT
        ) from error


def parse(answer: dict[str, Any]) -> Aftermath:
    """
    Make sense of the program's answer; raises what the standard library raises where it is none.
    """
    nvidia_smi = answer["nvidia_smi"]
    rows = [line.rpartition(",") for line in nvidia_smi.get("gpus", "").splitlines()]
    table = "\n".join(row for row, _, _ in rows)
    read = {**answer, "nvidia_smi": nvidia_smi["state"], "addresses": _addresses(rows)}
    told = msgspec.convert(read, Aftermath)
    holders = gpu_holders(nvidia_smi.get("holders", ""), [])
    return structs.replace(told, gpus=gpus(table), holders=holders)


def _addresses(rows: list[tuple[str, str, str]]) -> dict[int, str]:
    """
    PCI addresses, which stand in the last column, by the index in the first.
    """
    indices = [(row.partition(",")[0].strip(), address.strip()) for row, _, address in rows]
    return {int(index): address for index, address in indices if index.isdigit()}
