"""
The kernel's log, as far as it may be read: from /dev/kmsg, else from `dmesg`.

`MTPDEPLOY_KMSG` names another place for /dev/kmsg; then `dmesg` is not asked.
"""

from __future__ import annotations

import os
import re
import time

from mtpdeploy.onbox.asked import Asked

KMSG = "/dev/kmsg"

KMSG_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
"""`priority,sequence,microseconds,flags;text` (Linux, Documentation/ABI/testing/dev-kmsg)."""

DMESG_LINE = re.compile(r"(?:<\d+>)?\[ *(\d+\.\d+)\] ?(.*)")
"""`[    5.140900] text`; without a time where the kernel is told to write none."""

RECORD_BYTES = 8192
"""Bytes of one record at most (linux/kernel/printk: LOG_LINE_MAX and its prefix are far below)."""

KERNEL_LIMIT = 2.0
"""Seconds for all of the log: a full ring of 1 MiB is read in some 20 ms."""


def kernel_log() -> list[tuple[float, str]] | None:
    """
    All lines that the kernel still has, each with its seconds since the start; None where it shows none.

    The seconds are the kernel's own clock, which agrees with no other: compare them with each other.
    """
    until = time.monotonic() + KERNEL_LIMIT
    path = os.environ.get("MTPDEPLOY_KMSG", KMSG)
    records = kmsg(path, until)
    if records is not None:
        found = [KMSG_RECORD.match(line) for line in records.splitlines()]
        return [(int(match[1]) / 1e6, match[2]) for match in found if match]
    if path != KMSG:
        return None
    asked = Asked(["dmesg"], dict(os.environ, LC_ALL="C"))
    text = asked.answer(until)
    if not text or asked.status:
        return None
    told = [DMESG_LINE.match(line) for line in text.splitlines()]
    return [(float(match[1]), match[2]) for match in told if match] or None


def kmsg(path: str, until: float) -> str | None:
    """
    What a /dev/kmsg holds: each read gives one record, and an error where one was overwritten meanwhile.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    parts = []
    try:
        while time.monotonic() < until:
            try:
                data = os.read(handle, RECORD_BYTES)
            except BrokenPipeError:
                continue
            except BlockingIOError:
                break
            except OSError:
                return None
            if not data:
                break
            parts.append(data)
    finally:
        os.close(handle)
    return b"".join(parts).decode("utf-8", "replace")


def last_moment() -> float | None:
    """
    The time of the kernel's last line, against which later ones are told apart; None where it shows none.
    """
    lines = kernel_log()
    return None if lines is None else max((seconds for seconds, _ in lines), default=0.0)
