"""
What the GPUs of a run do, asked again and again beside everything else.
"""

from __future__ import annotations

import os
import time
from typing import Any, Iterable

from mtpdeploy.onbox.asked import Asked, nvidia_smi
from mtpdeploy.onbox.identity import living, proc_root, read_file, table

VISIBLE = "CUDA_VISIBLE_DEVICES"
FIELDS = "index,uuid,memory.used,utilization.gpu,power.draw"
QUERY = "--query-gpu=" + FIELDS
EVERY = 10.0
"""Seconds between two questions; a stall is judged by minutes."""

ANSWER = 8.0
"""Seconds for an answer. One that hangs in the driver cannot be ended, and none is asked beside it."""

MIB_OF_GPU = 1024 * 1024
"""Bytes in the unit that nvidia-smi counts memory in."""


class Gpus:
    """
    `usage` has the fields of an `Activity` (core/patience.py) that nvidia-smi tells; {} where it does not.

    `process` is the run's recorded process, set from outside: its environment says which cards it may use.
    """

    def __init__(self) -> None:
        self.process: dict[str, Any] | None = None
        self.usage: dict[str, Any] = {}
        self.asked: Asked | None = None
        self.program = nvidia_smi({})

    def work(self) -> None:
        """
        Ask for ever; at once an end where there is no nvidia-smi.
        """
        while self.program is not None:
            if hangs():
                self.usage = {}
                time.sleep(EVERY)
                continue
            words = [self.program, QUERY, "--format=csv,noheader,nounits"]
            self.asked = Asked(words, dict(os.environ))
            text = self.asked.answer(time.monotonic() + ANSWER)
            well = text is not None and self.asked.status == 0
            self.usage = card_usage(text or "", visible(self.process)) if well else {}
            time.sleep(EVERY)

    def close(self) -> None:
        """
        End the question that is being asked.
        """
        if self.asked is not None:
            self.asked.answer(0.0)


def hangs() -> bool:
    """
    Whether a question of this or of an earlier reader has not ended.
    """
    return any(QUERY in entry["cmdline"] and living(entry) for entry in table())


def visible(process: dict[str, Any] | None) -> list[str]:
    """
    The cards that a process may use, as its environment names them; [] where it says nothing.
    """
    root = proc_root()
    words = read_file(f"{root}/{process['pid']}/environ").split(b"\0") if root and process else []
    given = [
        os.fsdecode(word).partition("=")[2] for word in words if word.startswith(VISIBLE.encode() + b"=")
    ]
    return [name.strip() for name in given[0].split(",") if name.strip()] if given else []


def card_usage(answer: str, wanted: list[str]) -> dict[str, Any]:
    """
    Memory in use (bytes) and power (watts) of the wanted cards in all, and how busy the busiest is (%).

    All cards count where none of the wanted is among them (names of MIG slices). A figure that no card has
    (`[N/A]` for memory on GB10) is left out.
    """
    rows = [[field.strip() for field in line.split(",")] for line in answer.splitlines()]
    rows = [row for row in rows if len(row) == len(FIELDS.split(","))]
    rows = [row for row in rows if row[0] in wanted or row[1].startswith(tuple(wanted))] or rows
    memory, busy, watts = (numbers(row[column] for row in rows) for column in (2, 3, 4))
    told: dict[str, Any] = {}
    if memory:
        told["gpu_bytes"] = sum(memory) * MIB_OF_GPU
    if busy:
        told["gpu_busy"] = max(busy)
    if watts:
        told["gpu_watts"] = sum(watts)
    return told


def numbers(fields: Iterable[str]) -> list[float]:
    """
    Those of some fields that are numbers.
    """
    return [float(field) for field in fields if field.replace(".", "", 1).isdigit()]
