"""
Whether the first attempt is the one that works: `python -m tests.bench.grid`.

Every release times some cards times some wishes of a user, each on a simulated box: the ladder climbed
blindly, and led by the forecast, as `up --no-plan` and `up` do. The demo's own server is started each time,
in this process: its arguments are resolved, its pools sized, its graphs captured, and one full chunk of
prefill is asked of it.

Seconds are those that the demo lets pass: 6 s to import, 9 s to the scheduler's worker, 31 s for the
target's weights, 4 s for the draft's, 1 s for pools, 4 s and 0.2 s a size for decode graphs, 12 s for those
of prefill, 0.6 s for each GB that is pinned in host memory, 2.5 s to the first answer. Failed attempts alone
count.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import End, Stage
from mtpdeploy.core.foresight import foresee
from mtpdeploy.core.ladder import Step, next_step
from mtpdeploy.core.machine import ModelFacts
from mtpdeploy.core.memory import Card, Forecast, Seen
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.demo.home import SimulatedGpu, SimulatedModel
from mtpdeploy.deploy.calibration import seen_in
from mtpdeploy.deploy.order import MAX_ATTEMPTS
from mtpdeploy.deploy.planner import weights_of
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.engines.sglang.concessions import release
from tests.bench.figures import Figure, table
from tests.engines.sglang.sizing.models import CONFIG_27B, CONFIG_NEXT, shape
from tests.engines.sglang.sizing.random_starts import VERSIONS, taken
from tests.fakes.start import SimulatedCard, Start, lay_out_model

NAME = "first-attempt"
BLIND = "the ladder climbed blindly"
TARGET = 95.0
LADDER = SGLANG.ladders["default"]
GIB, MIB = 1 << 30, 1 << 20

MODELS = {
    "27b": SimulatedModel("27b", CONFIG_27B),
    "27b-fp8": SimulatedModel("27b-fp8", CONFIG_27B, weights_gib=29.09, draft_gib=5.29),
    "27b-nvfp4": SimulatedModel("27b-nvfp4", CONFIG_27B, weights_gib=18.81, draft_gib=5.05),
    "next-fp8": SimulatedModel("next-fp8", CONFIG_NEXT, weights_gib=75.0, draft_gib=4.2, given_back_gib=1.16),
}

BOXES = [
    # a card, its model from 0.5.9 on, and before (Qwen3.5 and 3.6 exist from there)
    (SimulatedGpu("RTX PRO 6000", 97887, 638, 666, "12.0"), "27b", "next-fp8"),
    (SimulatedGpu("H100", 81559, 551, 644, "9.0"), "27b-fp8", None),
    (SimulatedGpu("H200", 143771, 551, 644, "9.0"), "next-fp8", "next-fp8"),
    (SimulatedGpu("B200", 183359, 600, 650, "10.0"), "27b", "next-fp8"),
    (SimulatedGpu("RTX 6000 Ada", 49140, 500, 450, "8.9"), "27b-fp8", None),
    (SimulatedGpu("RTX 5090", 32607, 500, 450, "12.0"), "27b-nvfp4", None),
]

MTP: dict[str, FlagValue] = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
EXTRA: dict[str, FlagValue] = {"mamba_radix_cache_strategy": "extra_buffer"}
TRITON: dict[str, FlagValue] = {"attention_backend": "triton"}
V2 = {"SGLANG_ENABLE_SPEC_V2": "1"}

ASKS: dict[str, tuple[dict[str, FlagValue], dict[str, str]]] = {
    "the seed": (
        {
            **MTP,
            **EXTRA,
            **TRITON,
            "mem_fraction_static": 0.80,
            "max_running_requests": 512,
            "enable_hierarchical_cache": True,
            "hicache_size": 200,
        },
        V2,
    ),
    "512 requests": (
        {**MTP, **EXTRA, **TRITON, "mem_fraction_static": 0.90, "max_running_requests": 512},
        V2,
    ),
    "48 requests": ({**MTP, **EXTRA, "mem_fraction_static": 0.85, "max_running_requests": 48}, V2),
    "16 at 0.95": ({**MTP, **EXTRA, **TRITON, "mem_fraction_static": 0.95, "max_running_requests": 16}, V2),
    "all defaults": ({"speculative_algorithm": "NEXTN"}, {}),
    "no radix cache": (
        {
            **MTP,
            **TRITON,
            "disable_radix_cache": True,
            "max_running_requests": 256,
            "mem_fraction_static": 0.88,
        },
        {},
    ),
    "long context": ({**MTP, **EXTRA, "context_length": 131_072, "max_running_requests": 64}, {}),
    "cache by ratio": (
        {**MTP, **EXTRA, **TRITON, "enable_hierarchical_cache": True, "max_running_requests": 32},
        {},
    ),
}


class Run(Struct, frozen=True):
    """
    One ascent: its starts in order; `refused` where the forecast leaves nothing to start.
    """

    starts: tuple[Start, ...]
    refused: bool = False

    @property
    def ready(self) -> bool:
        """
        Whether its last start is ready.
        """
        return bool(self.starts) and self.starts[-1].ready

    @property
    def at_once(self) -> bool:
        """
        Whether its first one is.
        """
        return bool(self.starts) and self.starts[0].ready

    @property
    def wasted(self) -> float:
        """
        Seconds of the starts that failed.
        """
        return sum(start.seconds for start in self.starts if not start.ready)


class Box(Struct, frozen=True):
    """
    One point of the grid.
    """

    version: str
    ask: str
    model: str
    simulated: SimulatedCard
    server: ServerSpec

    def forecast(self, server: ServerSpec, seen: Seen | None) -> Forecast:
        """
        What the planner says on the facts that a survey of this box would bring.
        """
        model, gpu = MODELS[self.model], self.simulated.gpu
        drafted = model.draft_gib - model.given_back_gib
        facts = ModelFacts(
            model.name,
            is_local=True,
            exists=True,
            has_mtp=True,
            weight_bytes=int((model.weights_gib + drafted) * GIB),
            mtp_bytes=int(drafted * GIB),
        )
        found = shape(model.config)
        card = Card(
            total_mib=gpu.total_mib,
            unused=gpu.torch_total_mib * MIB,
            capability=gpu.compute_cap,
            host_free=int(self.simulated.host_memory_gb * 1e9),
        )
        return SGLANG.forecast(server, found, self.version, card, weights_of(facts, found), seen)


def boxes(folder: Path) -> Iterator[Box]:
    """
    The grid, with what a release does not know left out of what is asked.
    """
    for name, laid_out in MODELS.items():
        lay_out_model(folder / name, laid_out)
    for version in VERSIONS:
        for gpu, late, early in BOXES:
            model = late if release(version) >= (0, 5, 9) else early
            if model is None:
                continue
            for ask, (flags, env) in ASKS.items():
                server = ServerSpec(name="m", flags={"model_path": "m", **flags}, env=env)
                simulated = SimulatedCard(folder / model, gpu, version)
                yield Box(version, ask, model, simulated, taken(server, version))


def blind(box: Box) -> Run:
    """
    The ladder from what is asked upwards, decided by what each start said.
    """
    return climb(box, lambda step, _ascent, _seen: step.server)


def led(box: Box) -> Run:
    """
    The same, but what is predicted not to fit is not started; where nothing is left, nothing is.
    """

    def choose(step: Step, ascent: Ascent, seen: Seen | None) -> ServerSpec | None:
        found = foresee(
            step, LADDER, ascent, box.version, lambda server: box.forecast(server, seen), SGLANG.knowledge
        )
        return found.server or (step.server if ascent.outcomes else None)

    return climb(box, choose)


def climb(box: Box, choose: Callable[[Step, Ascent, Seen | None], ServerSpec | None]) -> Run:
    """
    Attempt after attempt until one is ready, none is left, or as many were made as one `up` makes.
    """
    ascent = Ascent(id="a", host="box", asked=box.server)
    step, seen = Step(box.server, None, "as asked"), None
    made: list[Start] = []
    while step.server is not None and len(made) < MAX_ATTEMPTS:
        server = choose(step, ascent, seen)
        if server is None:
            return Run(tuple(made), refused=True)
        made.append(box.simulated.start(server))
        if made[-1].ready:
            break
        seen = seen_in(made[-1].figures, server, box.simulated.gpu.total_mib * MIB)
        ascent = structs.replace(ascent, outcomes=(*ascent.outcomes, outcome(server, made[-1])))
        step = next_step(LADDER, ascent, box.version)
    return Run(tuple(made))


def outcome(server: ServerSpec, start: Start) -> Outcome:
    """
    How an attempt of the climb ended.
    """
    return Outcome(
        attempt=1,
        run="",
        server=server,
        end=End.EXITED,
        stage=Stage.LAUNCHED,
        started_at=0.0,
        seconds=start.seconds,
        verdict=start.verdict,
        figures=start.figures,
    )


class Both(Struct, frozen=True):
    """
    One box, climbed both ways.
    """

    box: Box
    blind: Run
    led: Run

    @property
    def possible(self) -> bool:
        """
        Whether anything runs there at all.
        """
        return self.blind.ready or self.led.ready


def measure(folder: Path) -> Iterator[Figure]:
    """
    The share of first attempts that are ready, and the seconds that failed ones took, in both ways.

    A box on which nothing can run counts where one of the two brings something up on it all the same.
    """
    return figures([Both(box, blind(box), led(box)) for box in boxes(folder)])


def figures(runs: list[Both]) -> Iterator[Figure]:
    """
    The rows of the table.
    """
    possible = [run for run in runs if run.possible]
    vain = [run for run in runs if not run.possible]
    count = f"of {len(possible)}"
    yield Figure(
        NAME,
        f"first attempts that are READY, {count}",
        100 * statistics.mean(run.led.at_once for run in possible),
        "%",
        target=TARGET,
        baseline=100 * statistics.mean(run.blind.at_once for run in possible),
        baseline_is=BLIND,
        more_is_better=True,
    )
    yield row(f"failed attempts, {len(possible)} boxes", "s", possible, lambda run: run.wasted, sum)
    yield row(f"failed where nothing can run, {len(vain)} boxes", "s", vain, lambda run: run.wasted, sum)
    yield row("attempts of one `up`", "", possible, lambda run: len(run.starts), statistics.mean)
    ready = row("boxes that end READY", "%", possible, lambda run: 100 * run.ready, statistics.mean)
    yield structs.replace(ready, more_is_better=True)


def row(
    name: str,
    unit: str,
    runs: list[Both],
    of: Callable[[Run], float],
    over: Callable[[list[float]], float],
) -> Figure:
    """
    One figure of the led climbs, beside the same of the blind ones.
    """
    ours, theirs = over([of(run.led) for run in runs]), over([of(run.blind) for run in runs])
    return Figure(NAME, name, ours, unit, baseline=theirs, baseline_is=BLIND)


def foretold_wrongly(runs: list[Both]) -> Iterator[str]:
    """
    Each first attempt that was foreseen to fit and failed, each box that was given up too early, in a line.
    """
    for run in runs:
        where = f"{run.box.version} {run.box.simulated.gpu.name}, {run.box.ask}"
        first = run.led.starts[0] if run.led.starts else None
        if first is not None and not first.ready:
            yield f"{where}: failed at first: {first.error[:70]}"
        if run.blind.ready and not run.led.ready:
            yield f"{where}: refused, yet ready after {len(run.blind.starts)} blind attempts"


def main() -> None:
    """
    Print the figures, and every forecast that was wrong.
    """
    with tempfile.TemporaryDirectory(prefix="mtpdeploy-grid-") as folder:
        runs = [Both(box, blind(box), led(box)) for box in boxes(Path(folder))]
    print(table(figures(runs)))
    print("\nforetold wrongly:", *list(foretold_wrongly(runs)) or ["none"], sep="\n  ")


if __name__ == "__main__":
    main()
