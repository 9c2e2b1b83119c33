"""The simulated `nvidia-smi`: answers from the box's ledger."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from .ledger import MIB, Ledger
from .settings import Settings, home, load

UNITS = {
    "memory": "MiB",
    "power": "W",
    "enforced": "W",
    "utilization": "%",
    "used_gpu_memory": "MiB",
    "used_memory": "MiB",
}
# (watts, per cent busy, degrees) of a card with nothing on it, with an idle server, loading, and decoding.
ACTIVITIES = {
    "none": (23.4, 0, 31),
    "idle": (71.9, 0, 38),
    "loading": (118.6, 9, 43),
    "decoding": (431.7, 96, 66),
}
NO_DEVICES, BAD_QUERY = 6, 2  # nvidia-smi's exit statuses


class Card:
    """The one GPU of the box, as the driver sees it now."""

    def __init__(self, settings: Settings) -> None:
        self.gpu = settings.gpu
        pages = Ledger(home(), settings).pages()
        self.pages = [page for page in pages if page["alive"]]
        used = sum(sum(page["allocations"].values()) for page in pages)
        # Two MiB are always in use: the driver's own.
        self.used_mib = round(used / MIB) + 2
        order = list(ACTIVITIES)
        kinds = [str(page.get("activity", "idle")) for page in self.pages]
        busiest = max((order.index(kind) for kind in kinds if kind in order), default=0)
        self.watts, self.busy, self.degrees = ACTIVITIES[order[busiest]]
        # More requests at once make better use of the same reads: towards the limit, never over it.
        more = max((int(page.get("requests", 0)) for page in self.pages), default=0) - 1
        if more > 0:
            self.watts += (self.gpu.power_limit_w * 0.97 - self.watts) * more / (more + 12)

    @property
    def free_mib(self) -> int:
        """What is neither used nor reserved."""
        return max(self.gpu.total_mib - self.gpu.reserved_mib - self.used_mib, 0)

    def fields(self) -> Dict[str, Any]:
        """Every field of --query-gpu that is known here, without units."""
        gpu = self.gpu
        return {
            "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
            "count": 1,
            "index": 0,
            "name": gpu.name,
            "gpu_name": gpu.name,
            "uuid": gpu.uuid,
            "gpu_uuid": gpu.uuid,
            "serial": "[N/A]",
            "driver_version": gpu.driver,
            "compute_cap": gpu.compute_cap,
            "pci.bus_id": "00000000:01:00.0",
            "gpu_bus_id": "00000000:01:00.0",
            "pstate": "P8" if self.watts < 30 else "P1",
            "memory.total": gpu.total_mib,
            "memory.reserved": gpu.reserved_mib,
            "memory.used": self.used_mib,
            "memory.free": self.free_mib,
            "utilization.gpu": self.busy,
            "utilization.memory": self.busy // 2,
            "temperature.gpu": self.degrees,
            "fan.speed": "[N/A]",
            "power.draw": f"{self.watts:.2f}",
            "power.limit": f"{gpu.power_limit_w:.2f}",
            "enforced.power.limit": f"{gpu.power_limit_w:.2f}",
            "clocks.sm": 180 if self.watts < 30 else min(2430, gpu.max_sm_mhz),
            "clocks.max.sm": gpu.max_sm_mhz,
            "clocks_event_reasons.active": "0x0000000000000000" if self.busy else "0x0000000000000001",
            "compute_mode": "Default",
            "mig.mode.current": "Disabled",
            "ecc.errors.uncorrected.volatile.total": 0,
        }

    def applications(self) -> List[Dict[str, Any]]:
        """One row for each living process that holds memory."""
        rows = []
        for page in self.pages:
            used = round(sum(page["allocations"].values()) / MIB)
            row = {"gpu_uuid": self.gpu.uuid, "pid": page["pid"], "process_name": page["name"]}
            row.update(name=page["name"], used_gpu_memory=used, used_memory=used, gpu_name=self.gpu.name)
            rows.append({**row, "gpu_bus_id": "00000000:01:00.0"})
        return rows


def _unit(name: str) -> str:
    return UNITS.get(name) or UNITS.get(name.split(".", maxsplit=1)[0]) or ""


def query(rows: List[Dict[str, Any]], names: List[str], known: List[str], options: List[str]) -> int:
    """A CSV answer to --query-…, with header and units unless told otherwise."""
    for name in names:
        if name not in known:
            print(f'Field "{name}" is not a valid field to query.\n')
            return BAD_QUERY
    units = "nounits" not in options
    if "noheader" not in options:
        print(", ".join(f"{name} [{_unit(name)}]" if _unit(name) and units else name for name in names))
    for row in rows:
        cells = []
        for name in names:
            unit = _unit(name) if units else ""
            cells.append(f"{row[name]} {unit}".strip() if unit else str(row[name]))
        print(", ".join(cells))
    return 0


def table(card: Card) -> str:
    """The plain table; it says that it is simulated, the card keeps its name."""
    gpu = card.gpu
    width = 89
    rule = "+" + "-" * width + "+"
    name = f"  0  {gpu.name}"
    memory = f"{card.used_mib}MiB / {gpu.total_mib}MiB"
    lines = [
        time.strftime("%a %b %d %H:%M:%S %Y"),
        rule,
        "|" + " SIMULATED by mtpdeploy's demo box: there is no GPU here".ljust(width) + "|",
        "|"
        + f" NVIDIA-SMI {gpu.driver}   Driver Version: {gpu.driver}   CUDA Version: {gpu.cuda}".ljust(width)
        + "|",
        rule,
        "|" + name.ljust(width) + "|",
        "|"
        + f"  {card.degrees}C  {card.watts:.0f}W / {gpu.power_limit_w}W   {memory}   {card.busy}%".ljust(
            width
        )
        + "|",
        rule,
        "|" + " Processes:   GPU   PID   Process name   GPU Memory".ljust(width) + "|",
    ]
    for row in card.applications():
        text = f"              0   {row['pid']}   {row['process_name']}   {row['used_gpu_memory']}MiB"
        lines.append("|" + text.ljust(width) + "|")
    if not card.pages:
        lines.append("|" + "  No running processes found".ljust(width) + "|")
    return "\n".join([*lines, rule])


def _value(argv: List[str], *names: str) -> Optional[str]:
    for position, word in enumerate(argv):
        head, equals, value = word.partition("=")
        if head in names:
            return value if equals else (argv[position + 1] if position + 1 < len(argv) else "")
    return None


def _queries(argv: List[str]) -> Tuple[Optional[str], Optional[str], List[str]]:
    options = (_value(argv, "--format") or "").split(",")
    return _value(argv, "--query-gpu"), _value(argv, "--query-compute-apps"), options


def main(argv: List[str]) -> int:
    """Answer one call; the exit status is nvidia-smi's."""
    settings = load()
    hostile = settings.hostile_now()
    if hostile.nvidia_smi == "hangs":
        time.sleep(hostile.nvidia_smi_hang_s)
    if hostile.nvidia_smi == "no-gpu":
        print("No devices were found")
        return NO_DEVICES
    selected = _value(argv, "-i", "--id")
    if selected not in (None, "0", settings.gpu.uuid):
        print("No devices were found")
        return NO_DEVICES
    card = Card(settings)
    gpus, applications, options = _queries(argv)
    if gpus is not None:
        fields = card.fields()
        return query([fields], [name.strip() for name in gpus.split(",")], list(fields), options)
    if applications is not None:
        known = [
            "gpu_uuid",
            "gpu_name",
            "gpu_bus_id",
            "pid",
            "process_name",
            "name",
            "used_gpu_memory",
            "used_memory",
        ]
        return query(card.applications(), [name.strip() for name in applications.split(",")], known, options)
    if "-L" in argv or "--list-gpus" in argv:
        print(f"GPU 0: {settings.gpu.name} (UUID: {settings.gpu.uuid})")
        return 0
    print(table(card))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
