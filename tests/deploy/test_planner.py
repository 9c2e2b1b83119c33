"""
Forecasts on the facts of a box, before a launch and while an attempt runs.
"""

from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from mtpdeploy.clock import SystemClock
from mtpdeploy.core.diagnosis import Cause, Milestone, Stage, Verdict
from mtpdeploy.core.foresight import Foreseen, Passed
from mtpdeploy.core.machine import Facts, GpuHolder, Host
from mtpdeploy.core.memory import Fit, Forecast, Seen
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.order import Options, Order, Tools
from mtpdeploy.deploy.planner import Foreteller, Unplanned, card_of, nothing_fits, predictor, weights_of
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.engines.sglang.rungs import LADDERS
from tests.core.crowds import CARDS, facts, ours, process, tree
from tests.deploy.planning import GIB, KEPT, MODEL, asked, box, record
from tests.engines.sglang.sizing.models import CONFIG_27B, CONFIG_DENSE, shape

LOADED = {"free_before_weights_gib": 94.32, "weights_gib": 51.05}
TOO_MUCH = {**LOADED, "weights_gib": 75.0}
DRAFTED = {"draft_weights_gib": 5.53}
NO_DRAFT: dict[str, None] = dict.fromkeys(
    [
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
    ]
)


def tools() -> Tools:
    """
    Of an ascent's tools the engine is all that forecasts use.
    """
    return Tools(
        box=cast("Any", None),
        engine=SGLANG,
        clock=SystemClock(),
        emit=lambda _event: None,
        state=Path("nowhere"),
        ladder=LADDERS.__getitem__,
    )


def foretold(
    figures: dict[str, float],
    stage: Stage,
    server: ServerSpec | None = None,
    version: str = "0.5.23",
    on: Facts | None = None,
) -> Verdict | None:
    """
    What is said of a running attempt that printed these figures.
    """
    foreteller = Foreteller(record(server or asked(), version), tools(), on or box(version))
    return foreteller(figures, Milestone(stage, 42, "Load weight end."))


def predicted(seen: Seen | None, server: ServerSpec | None = None) -> Forecast:
    """
    What is said of a server on the box after such a start there.
    """
    predict = predictor(SGLANG, box(), seen)
    assert not isinstance(predict, Unplanned)
    forecast = predict(server or asked())
    assert forecast is not None
    return forecast


class TestForeteller:
    """
    A running attempt is ended for its own figures, and for nothing less.
    """

    def test_weights_above_the_forecast(self) -> None:
        """
        Weights and draft leave no room for pools: SGLang would say so minutes later.
        """
        verdict = foretold({**TOO_MUCH, **DRAFTED}, Stage.DRAFT_LOADED)

        assert verdict is not None
        assert (Cause.OOM_STATE_POOL, "Load weight end.", 42) == (verdict.cause, verdict.proof, verdict.line)
        assert verdict.because.startswith("foretold by its own figures: ")
        assert SGLANG.knowledge[Cause.OOM_STATE_POOL].remedy == verdict.remedy
        assert 0.80 == verdict.figures["mem_fraction_static"]

    def test_not_before_the_draft_is_loaded(self) -> None:
        """
        The draft's size is a guess until then, and a guess ends nothing that lives.
        """
        assert foretold(TOO_MUCH, Stage.WEIGHTS_LOADED) is None
        assert foretold(TOO_MUCH, Stage.DRAFT_LOADED) is None

    def test_at_once_without_a_draft(self) -> None:
        """
        Where no draft is to come the target's weights are all.
        """
        verdict = foretold(TOO_MUCH, Stage.WEIGHTS_LOADED, asked(**NO_DRAFT, mem_fraction_static=0.75))

        assert verdict is not None
        assert Cause.OOM_STATE_POOL is verdict.cause

    def test_what_fits_goes_on(self) -> None:
        """
        Figures as forecast end nothing.
        """
        assert foretold(LOADED, Stage.WEIGHTS_LOADED) is None
        assert foretold({**LOADED, **DRAFTED}, Stage.DRAFT_LOADED) is None

    @pytest.mark.parametrize(
        "stage", [s for s in Stage if s not in (Stage.WEIGHTS_LOADED, Stage.DRAFT_LOADED)]
    )
    def test_other_stages_tell_nothing(self, stage: Stage) -> None:
        """
        Before the loads nothing is known, and after them SGLang speaks for itself.
        """
        assert foretold({**TOO_MUCH, **DRAFTED}, stage) is None

    def test_estimates_end_nothing(self) -> None:
        """
        Graphs that are not expected to fit are an estimate: no error of SGLang's is certain.
        """
        server = asked(mem_fraction_static=0.98)
        assert Fit.FITS is not predicted(None, server).fit

        assert foretold({**LOADED, **DRAFTED}, Stage.DRAFT_LOADED, server) is None

    @pytest.mark.parametrize(
        "figures",
        [
            {"weights_gib": -3.0, **DRAFTED},
            {**TOO_MUCH, "draft_weights_gib": -0.2},
            {"weights_gib": 4000.0, **DRAFTED},
        ],
        ids=["weights below nothing", "a draft below nothing", "weights above the card"],
    )
    def test_nonsense_ends_nothing(self, figures: dict[str, float]) -> None:
        """
        Figures that cannot be (unified memory) are no figures.
        """
        assert foretold(figures, Stage.DRAFT_LOADED) is None

    def test_a_box_of_which_nothing_can_be_said(self) -> None:
        """
        Without a config.json nothing is foretold.
        """
        assert foretold({**TOO_MUCH, **DRAFTED}, Stage.DRAFT_LOADED, on=box(model=None)) is None


class TestPredictor:
    """
    What a survey has to show.
    """

    @pytest.mark.parametrize(
        ("on", "why"),
        [
            (box(model=None), "the model's config.json is not on the box"),
            (
                box(model=structs.replace(MODEL, config=None)),
                "the model's config.json is not on the box",
            ),
            (box(gpus=()), "the box shows no GPU"),
            (box(version=None), "SGLang's version is not known"),
        ],
        ids=["no model", "no config", "no GPU", "no SGLang"],
    )
    def test_what_is_lacking(self, on: Facts, why: str) -> None:
        """
        It says what nothing can be said without.
        """
        assert Unplanned(why) == predictor(SGLANG, on)

    @pytest.mark.parametrize("config", ["{", "[]", "{}", '"text"'])
    def test_a_config_that_describes_no_model(self, config: str) -> None:
        """
        The reason is the reading's own.
        """
        found = predictor(SGLANG, box(model=structs.replace(MODEL, config=config)))

        assert isinstance(found, Unplanned)
        assert found.why.startswith("config.json describes no model: ")

    def test_a_forecast_on_the_box(self) -> None:
        """
        Card, weights and version are those of the survey.
        """
        forecast = predicted(None)

        assert (Fit.FITS, "0.5.23", 96 * GIB) == (forecast.fit, forecast.version, forecast.total)
        assert pytest.approx(51.05) == forecast.figures["weights_gib"]
        assert pytest.approx(5.53, abs=0.005) == forecast.figures["draft_gib"]

    def test_what_was_seen_counts_more(self) -> None:
        """
        Figures of a start on the box replace those of its files, and the guess at a CUDA context.
        """
        free = 96 * GIB - (4 << 20) - int(0.8 * GIB)
        forecast = predicted(Seen(free=free, weights=52 * GIB))

        assert (free, 52.0) == (forecast.free, forecast.figures["weights_gib"])

    @pytest.mark.parametrize("free", [40, 200])
    def test_memory_that_was_free_then(self, free: int) -> None:
        """
        Somebody else held memory then, or holds it now: the survey counts.
        """
        assert predicted(None).free == predicted(Seen(free=free * GIB)).free

    def test_figures_seen_under_other_flags(self) -> None:
        """
        What a rank of two loaded says nothing of one.
        """
        seen = Seen(weights=25 * GIB, under={"weights": {"tp_size": 2}})

        assert pytest.approx(51.05) == predicted(seen).figures["weights_gib"]

    def test_an_attempt_that_runs_knows_better_than_the_survey(self) -> None:
        """
        What it printed is what it has.
        """
        predict = predictor(SGLANG, box(), Seen(free=70 * GIB), running=True)
        assert not isinstance(predict, Unplanned)
        forecast = predict(asked())
        assert forecast is not None

        assert 70 * GIB == forecast.free

    def test_no_card_that_is_asked_for(self) -> None:
        """
        A server that wants a GPU which is not there has no forecast.
        """
        predict = predictor(SGLANG, box())
        assert not isinstance(predict, Unplanned)

        assert predict(structs.replace(asked(), gpus=(7,))) is None


class TestCard:
    """
    The smallest of the cards that a server may use.
    """

    def test_the_least_free(self) -> None:
        """
        Of two cards the fuller one decides, less what CUDA takes itself.
        """
        crowd = facts(used=(4, 1000))
        card = card_of(crowd, asked())
        alone = card_of(crowd, structs.replace(asked(), gpus=(0,)))
        assert card is not None
        assert alone is not None

        assert 96 * 1024 == card.total_mib
        assert 96 * GIB - (1000 << 20) == card.unused
        assert 96 * GIB - (4 << 20) == alone.unused

    def test_memory_that_comes_back(self) -> None:
        """
        What a server of ours holds is ended before the launch, and counts as free.
        """
        members = tree(gpu=CARDS[0])
        crowd = facts(*members, runs=(ours("run-9", members, asked()),), used=(4,))
        card = card_of(crowd, asked())
        assert card is not None

        assert 96 * GIB == card.unused

    def test_memory_that_comes_back_of_hidden_processes(self) -> None:
        """
        In a container nobody may tell who holds what: all but what a launch does not wait for counts as free.
        """
        members = tuple(structs.replace(one, gpu_bytes={}) for one in tree())
        crowd = facts(*members, runs=(ours("run-9", members, asked()),), used=(80 * 1024,))
        card = card_of(crowd, asked())
        assert card is not None

        assert 95 * GIB == card.unused

    def test_memory_of_strangers_is_gone(self) -> None:
        """
        What is foreign stays where it is.
        """
        stranger = process(7, "python train.py", kind="", user="other", gpu_bytes={CARDS[0]: 40 * GIB})
        card = card_of(facts(stranger, used=(4,)), asked())
        assert card is not None

        assert 56 * GIB == card.unused

    def test_what_is_kept_stays(self) -> None:
        """
        With `--keep-others` the memory of another server of the same user is not counted as free.
        """
        members = tree(gpu=CARDS[0])
        crowd = facts(*members, used=(80 * 1024,))
        ended = card_of(crowd, asked())
        kept = card_of(
            crowd, structs.replace(asked(), flags={**asked().flags, "port": 30999}), keep_others=True
        )
        assert ended is not None
        assert kept is not None

        assert (ended.unused or 0) > 90 * GIB
        assert (kept.unused or 0) < 16 * GIB

    def test_a_full_card(self) -> None:
        """
        Less than nothing is never free.
        """
        stranger = process(7, "python train.py", kind="", user="other", gpu_bytes={CARDS[0]: 96 * GIB})
        card = card_of(facts(stranger, used=(4,)), asked())
        assert card is not None

        assert 0 == card.unused


class TestWeights:
    """
    What a checkpoint's files say of the loads.
    """

    def test_the_draft_brings_two_tables(self) -> None:
        """
        Its tensors are 0.79 GiB; it loads with two tables of 2.37 GiB each.
        """
        weights = weights_of(MODEL, shape(CONFIG_27B))
        assert weights.target is not None
        assert weights.draft is not None

        assert pytest.approx(51.05) == weights.target / GIB
        assert pytest.approx(5.53, abs=0.005) == weights.draft / GIB

    def test_files_that_do_not_tell(self) -> None:
        """
        Without headers the draft's part is worked out from the shape.
        """
        weights = weights_of(structs.replace(MODEL, mtp_bytes=None), shape(CONFIG_27B))
        assert weights.target is not None

        assert pytest.approx(51.05, abs=0.01) == weights.target / GIB

    def test_a_checkpoint_without_a_draft(self) -> None:
        """
        All of it is the target's.
        """
        bare = structs.replace(MODEL, mtp_bytes=None, has_mtp=False, weight_bytes=60 * GIB)

        assert (60 * GIB, None) == (
            weights_of(bare, shape(CONFIG_DENSE)).target,
            weights_of(bare, shape(CONFIG_DENSE)).draft,
        )

    def test_nothing_is_known(self) -> None:
        """
        Weights that no file tells are left to the shape.
        """
        assert weights_of(structs.replace(MODEL, weight_bytes=None), shape(CONFIG_27B)).target is None

    def test_an_index_smaller_than_its_draft(self) -> None:
        """
        A damaged index makes no weights below nothing.
        """
        small = structs.replace(MODEL, weight_bytes=int(KEPT * GIB / 2))

        assert 0 == weights_of(small, shape(CONFIG_27B)).target


def test_the_error_where_nothing_fits() -> None:
    """
    It names the box, the ladder, the first reason and the last, and the two ways on.
    """
    host = Host(name="h200-a", address="203.0.113.20")
    passed = tuple(
        Passed(rung, changed, reason)
        for rung, changed, reason in [
            (None, (), "512 requests are too many"),
            ("fewer", ("max_running_requests 512 → 48",), "48 are too many"),
            ("fewest", ("max_running_requests 512 → 1",), "one is too many"),
        ]
    )
    order = Order(asked(), host, LADDERS["default"], Options())
    error = nothing_fits(order, facts(used=(4,)), Foreseen(None, (), passed, None))

    assert (
        "nothing on the ladder `default` is predicted to fit on `h200-a`: "
        "as asked: 512 requests are too many; max_running_requests 512 → 1: one is too many"
    ) == error.message
    assert error.hint is not None
    assert "--solve" in error.hint
    assert "--no-plan" in error.hint


def test_what_is_in_the_way_is_named_first() -> None:
    """
    Where a stranger holds the memory that is missing, that is the error: it can be ended, a forecast cannot.
    """
    stranger = process(7, "python train.py", kind="", user="other", gpu_bytes={CARDS[0]: 90 * GIB})
    holder = GpuHolder(gpu_uuid=CARDS[0], pid=7, name="python", visible=True, used_bytes=90 * GIB)
    box = structs.replace(facts(stranger, used=(90 * 1024,)), gpu_holders=(holder,))
    order = Order(asked(), Host(name="a", address="203.0.113.20"), LADDERS["default"], Options())

    error = nothing_fits(order, box, Foreseen(None, (), (Passed(None, (), "too much"),), None))

    assert error.message.startswith("something on `a` is in the way, and mtpdeploy never ends it")
