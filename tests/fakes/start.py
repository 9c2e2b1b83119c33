"""
A start of the demo box's server inside this process: its own resolution, arithmetic, ledger and log lines,
but no processes, no files of a ledger, and no time that passes.

It is the separate judge of what the planner says: the two share no arithmetic. Seconds are those that the
demo would let pass: importing and resolving, the load, pools, captures, pinning, and the first request.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from mtpdeploy.core.diagnosis import End, Verdict
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.verdict import diagnose
from mtpdeploy.demo import home as homes
from mtpdeploy.demo.home import SimulatedGpu, SimulatedModel
from mtpdeploy.demo.site.sglang import lines
from mtpdeploy.demo.site.sglang.acts import Acts
from mtpdeploy.demo.site.sglang.boot import Boot, demand_of
from mtpdeploy.demo.site.sglang.capture import activation_gib
from mtpdeploy.demo.site.sglang.checkpoint import open_checkpoint
from mtpdeploy.demo.site.sglang.launch_server import FIRST_REQUEST_S, STARTUP_S, TOKENIZER_S
from mtpdeploy.demo.site.sglang.launch_server import IMPORT_S as MAIN_IMPORT_S
from mtpdeploy.demo.site.sglang.ledger import GIB, MIB, Ledger, OutOfMemoryError
from mtpdeploy.demo.site.sglang.refusals import SERVING, RefusedError, traceback_text
from mtpdeploy.demo.site.sglang.resolve import Resolved, resolve
from mtpdeploy.demo.site.sglang.scheduler import IMPORT_S
from mtpdeploy.demo.site.sglang.settings import Hostile, Settings
from mtpdeploy.demo.site.sglang.sizing import Demand
from mtpdeploy.engines.sglang import SGLANG

READY_LINE = "The server is fired up and ready to roll!"
KILLED, REFUSED = 137, 1


class Start(Struct, frozen=True):
    """
    How one start ended: the verdict that its log proves (None where it is ready and answered a full chunk),
    the error in SGLang's words, the seconds that it took, and the figures that its log told.
    """

    ready: bool
    verdict: Verdict | None
    error: str
    seconds: float
    figures: dict[str, float]
    slots: int = 0
    tokens: int = 0
    requests: int = 0


class SimulatedCard(Struct, frozen=True):
    """
    One box: a card, a release, and a model directory on it.
    """

    folder: Path
    gpu: SimulatedGpu
    version: str
    host_memory_gb: float = 515.0

    @property
    def settings(self) -> Settings:
        """
        What the demo's programs read from their home.
        """
        return Settings(self.version, self.gpu, Hostile(), 1.0, host_memory_gb=self.host_memory_gb)

    def demand(self, server: ServerSpec) -> Demand:
        """
        What sizing starts from in a start of this server.

        Raises:
            RefusedError: the arguments are refused.
        """
        with environment(server.env):
            state = self._resolved(server)
            model = open_checkpoint(str(self.folder), state.config, state.era)
            free = (self.gpu.torch_total_mib - self.gpu.context_mib) * MIB / GIB
            draft = model.draft_gib if state.get("speculative_algorithm") else 0.0
            return demand_of(state, self.version, free, model.weights_gib, draft)

    def start(self, server: ServerSpec) -> Start:
        """
        Start it, and ask it for one full chunk of prefill.
        """
        said: list[bytes] = []
        with environment(server.env), listening(said):
            return self._start(server, said)

    def _resolved(self, server: ServerSpec) -> Resolved:
        given = {name: value for name, value in server.flags.items() if value is not False}
        return resolve({**given, "model_path": str(self.folder)}, self.settings)

    def _start(self, server: ServerSpec, said: list[bytes]) -> Start:
        try:
            state = self._resolved(server)
        except RefusedError as error:
            lines.write(traceback_text(error, module=True) + "\n")
            return _ended(said, error, REFUSED, MAIN_IMPORT_S)
        lines.log(lines.server_args(state.era, state.args))
        boot = _Boot(state, self.settings, _Ledger(self.settings), _no_acts(self.settings))
        boot.waited = MAIN_IMPORT_S + TOKENIZER_S + IMPORT_S
        try:
            boot.run()
            boot.waited += STARTUP_S + FIRST_REQUEST_S
            lines.log(READY_LINE)
            boot.prefill()
        except RefusedError as error:
            lines.log(f"Scheduler hit an exception: {traceback_text(error)}\n")
            lines.log("Received sigquit from a child process. It usually means the child failed.")
            return _ended(said, error, KILLED, boot.waited)
        pools = boot.pools
        figures = _read(said).figures
        return Start(True, None, "", boot.waited, figures, pools.slots, pools.tokens, pools.requests)


class _Boot(Boot):
    """
    The demo's story, with a clock that only counts.
    """

    waited = 0.0

    def pause(self, seconds: float) -> None:
        self.waited += seconds

    def prefill(self) -> None:
        """
        One chunk of prompt, as the proof of a ready server asks for.
        """
        chunk = int(self.state.args["chunked_prefill_size"])
        try:
            self.ledger.require(activation_gib(self.state, chunk) * GIB)
        except OutOfMemoryError as error:
            raise RefusedError("torch.OutOfMemoryError", str(error), SERVING) from error


class _Ledger(Ledger):
    """
    The demo's ledger of one process, kept in memory.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.held: dict[str, float] = {}
        self.activity = "loading"
        self.pid = os.getpid()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        yield

    def _write(self) -> None:
        pass

    def pages(self) -> list[dict[str, Any]]:
        return [{"pid": self.pid, "allocations": self.held}]


def lay_out_model(folder: Path, model: SimulatedModel) -> None:
    """
    A checkpoint of empty shards with the sizes that the demo is to show.
    """
    homes._model(folder, model)


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """
    This process's environment with SGLang's variables as a server has them.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith("SGLANG_")}
    for name in before:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("SGLANG_")]:
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def listening(said: list[bytes]) -> Iterator[None]:
    """
    What the demo logs goes into a list.
    """
    raw, name = lines.raw, "raw"
    setattr(lines, name, said.append)
    try:
        yield
    finally:
        setattr(lines, name, raw)


def _no_acts(settings: Settings) -> Acts:
    return Acts(settings, scheduler=True, kill_family=lambda: None)


def _read(said: list[bytes]) -> Any:
    reading = SGLANG.reading("")
    for number, text in enumerate(b"".join(said).decode("utf-8", "replace").split("\n"), 1):
        reading.feed(number, text)
    return reading


def _ended(said: list[bytes], error: RefusedError, status: int, seconds: float) -> Start:
    reading = _read(said)
    verdict = diagnose(reading.evidence(End.EXITED, status, {}), SGLANG.knowledge)
    text = str(error) or error.kind
    return Start(False, verdict, text, seconds, dict(reading.figures))
