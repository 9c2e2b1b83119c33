"""
What starts showed, kept between two of them, and held against what was forecast.
"""

from pathlib import Path

import pytest
from msgspec import structs

from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.memory import Card, Seen, Weights
from mtpdeploy.core.server import FlagValue
from mtpdeploy.deploy.calibration import Calibration, Memory, compare, seen_in, still_true
from mtpdeploy.engines.sglang import SGLANG
from tests.deploy.planning import GIB, asked, box, ended
from tests.engines.sglang.sizing.models import CONFIG_27B, shape

LOADED = {"free_before_weights_gib": 94.32, "weights_gib": 51.05, "draft_weights_gib": 5.53}
READY = {**LOADED, "graphs_gib": 3.25, "max_running_requests": 9.0}
TOTAL = 96 * GIB
WANTED = asked(max_running_requests=512)


def gib(amount: float) -> int:
    """
    Bytes of so many GiB.
    """
    return int(amount * GIB)


class TestMemory:
    """
    One file for each box, model and version.
    """

    def test_round_trip(self, tmp_path: Path) -> None:
        """
        What a start that was ready showed is known to the next one, with its flags and rungs.
        """
        server = asked(cuda_graph_max_bs_decode=8)
        Memory(tmp_path, box()).keep(WANTED, ended(server, READY), ("fewer-requests",), 7.0)

        seen = Seen(gib(94.32), gib(51.05), gib(5.53), gib(3.25), graph_tokens=8 * 4)
        known = Memory(tmp_path, box()).read()

        assert seen == structs.replace(known.seen, under={})
        assert (dict(server.flags), ("fewer-requests",), 7.0) == (
            known.ready and dict(known.ready.flags),
            known.rungs,
            known.at,
        )

    def test_nothing_is_known_at_first(self, tmp_path: Path) -> None:
        """
        Without a file nothing is known, and none is made by reading.
        """
        assert Calibration() == Memory(tmp_path, box()).read()
        assert [] == list(tmp_path.iterdir())

    def test_what_is_not_reached_stays(self, tmp_path: Path) -> None:
        """
        A start that died early changes what it showed, and no more: what was ready last stays.
        """
        memory = Memory(tmp_path, box())
        memory.keep(WANTED, ended(asked(), READY), ("rung",), 1.0)
        memory.keep(WANTED, ended(asked(port=1), {"weights_gib": 51.2}, End.EXITED), (), 2.0)
        known = memory.read()

        assert (gib(51.2), gib(5.53), gib(3.25)) == (known.seen.weights, known.seen.draft, known.seen.graphs)
        assert (WANTED, asked(), ("rung",), 1.0) == (known.asked, known.ready, known.rungs, known.at)

    def test_captures_that_were_cut_short_say_nothing(self, tmp_path: Path) -> None:
        """
        Graphs of a start that died while it captured are no measure.
        """
        memory = Memory(tmp_path, box())
        memory.keep(WANTED, ended(asked(), READY, End.EXITED), (), 1.0)

        assert memory.read().seen.graphs is None
        assert gib(51.05) == memory.read().seen.weights

    def test_each_figure_has_its_own_flags(self, tmp_path: Path) -> None:
        """
        Weights of the last start and graphs of one before are each known under what they were seen with.
        """
        memory = Memory(tmp_path, box())
        memory.keep(WANTED, ended(asked(chunked_prefill_size=4096), READY), (), 1.0)
        memory.keep(WANTED, ended(asked(tp_size=2), {"weights_gib": 25.6}, End.EXITED), (), 2.0)
        seen = memory.read().seen

        assert {"tp_size": 2} == seen.under["weights"]
        assert 4096 == seen.under["graphs"]["chunked_prefill_size"]

    def test_another_version_model_or_card_knows_nothing(self, tmp_path: Path) -> None:
        """
        What one shows is not true of the other.
        """
        Memory(tmp_path, box()).keep(WANTED, ended(asked(), READY), (), 1.0)
        facts = box()
        assert facts.model is not None
        others = [
            box("0.5.22"),
            structs.replace(facts, model=structs.replace(facts.model, config="{}")),
            structs.replace(facts, model=structs.replace(facts.model, weight_bytes=7)),
            structs.replace(facts, model=None),
            structs.replace(facts, gpus=(structs.replace(facts.gpus[0], uuid="GPU-other"),)),
        ]

        assert [Calibration()] * 5 == [Memory(tmp_path, other).read() for other in others]

    @pytest.mark.parametrize(
        "content",
        [b"", b"\xff\xfe\x00", b"[1, 2]", b'{"seen": {"free": "much"}}', b'{"seen"', b"[" * 100_000],
        ids=["empty", "binary", "a list", "words for numbers", "truncated", "deep"],
    )
    def test_a_file_of_garbage(self, content: bytes, tmp_path: Path) -> None:
        """
        It counts as none, and the next start replaces it.
        """
        memory = Memory(tmp_path, box())
        memory.keep(WANTED, ended(asked(), READY), (), 1.0)
        (file,) = (tmp_path / "calibrations").iterdir()
        file.write_bytes(content)

        assert Calibration() == memory.read()

        memory.keep(WANTED, ended(asked(), READY), (), 2.0)
        assert gib(51.05) == memory.read().seen.weights

    def test_a_folder_that_cannot_be(self, tmp_path: Path) -> None:
        """
        Where nothing can be kept nothing is, and no start fails for it.
        """
        (tmp_path / "calibrations").write_text("a file")
        memory = Memory(tmp_path, box())
        memory.keep(WANTED, ended(asked(), READY), (), 1.0)

        assert Calibration() == memory.read()

    def test_a_file_that_is_a_folder(self, tmp_path: Path) -> None:
        """
        The same where the file's own place is taken.
        """
        memory = Memory(tmp_path, box())
        memory.keep(WANTED, ended(asked(), READY), (), 1.0)
        (file,) = (tmp_path / "calibrations").iterdir()
        file.unlink()
        file.mkdir()
        memory.keep(WANTED, ended(asked(), READY), (), 2.0)

        assert Calibration() == memory.read()


class TestSeen:
    """
    What a log's figures say.
    """

    @pytest.mark.parametrize(
        "figure", [-3.2, 0.0, 96.1, 1e300, float("inf"), float("-inf"), float("nan")], ids=str
    )
    @pytest.mark.parametrize("name", [*LOADED, "graphs_gib"])
    def test_a_figure_that_no_card_can_have(self, name: str, figure: float) -> None:
        """
        Unified memory prints loads below nothing and above the card; the others are believed.
        """
        expected = seen_in({k: v for k, v in READY.items() if k != name}, asked(), TOTAL)

        assert expected == seen_in({**READY, name: figure}, asked(), TOTAL)
        assert 1 == sum(
            value is None for value in (expected.free, expected.weights, expected.draft, expected.graphs)
        )

    def test_no_figures(self) -> None:
        """
        A log that told nothing shows nothing.
        """
        assert Seen() == seen_in({}, asked(), TOTAL)

    @pytest.mark.parametrize(
        ("flags", "requests", "tokens"),
        [
            ({}, 9.0, 36),
            ({"cuda_graph_max_bs_decode": 4}, 9.0, 16),
            ({}, 1000.0, 1024),
            ({"speculative_algorithm": None}, 9.0, 9),
        ],
        ids=["as many as run", "as many as are captured", "SGLang's largest", "no draft"],
    )
    def test_tokens_of_the_largest_batch(
        self, flags: dict[str, int | None], requests: float, tokens: int
    ) -> None:
        """
        Graphs are captured for as many requests as run, each with its draft tokens.
        """
        figures = {**READY, "max_running_requests": requests}

        assert tokens == seen_in(figures, asked(**flags), TOTAL).graph_tokens


class TestStillTrue:
    """
    What was seen with other flags is no measure.
    """

    @pytest.mark.parametrize(
        ("flags", "gone"),
        [
            ({"max_running_requests": 4, "mem_fraction_static": 0.9, "port": 1}, set()),
            ({"cuda_graph_max_bs_decode": 4, "speculative_num_draft_tokens": 5}, set()),
            ({"tp_size": 2}, {"weights", "draft", "graphs"}),
            ({"quantization": "fp8"}, {"weights", "draft", "graphs"}),
            ({"speculative_draft_model_path": "other"}, {"draft", "graphs"}),
            ({"cuda_graph_backend_prefill": "disabled"}, {"graphs"}),
            ({"chunked_prefill_size": 2048}, {"graphs"}),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
    )
    def test_flags(self, flags: dict[str, FlagValue], gone: set[str]) -> None:
        """
        Each figure goes with the flags that decide it; what is free depends on none.
        """
        seen = seen_in(READY, asked(), TOTAL)
        left = still_true(seen, asked(**flags))

        assert gone == {name for name in ("free", "weights", "draft", "graphs") if not getattr(left, name)}

    def test_a_file_without_flags(self) -> None:
        """
        Of figures kept without their flags a server with none of them is believed to be meant.
        """
        seen = Seen(weights=gib(51.05), draft=gib(5.53))

        assert (gib(51.05), None) == (
            still_true(seen, asked()).weights,
            still_true(seen, asked()).draft,
        )


class TestCompared:
    """
    A forecast beside what its start printed.
    """

    def test_names_forecast_and_seen(self) -> None:
        """
        Only what both tell, each under the log's name.
        """
        server = asked(mem_fraction_static=0.90)
        card = Card(97887, gib(94.32))
        forecast = SGLANG.forecast(
            server, shape(CONFIG_27B), "0.5.23", card, Weights(gib(51.05), gib(5.53)), None
        )
        printed = {"weights_gib": 51.05, "ssm_state_gib": 6.47, "kv_tokens": 252_000.0, "elapsed_s": 1.0}
        printed |= {"max_running_requests": 9.0, "max_total_num_tokens": 252_000.0}
        outcome = ended(server, printed)
        told = {name: said for name, said, _ in compare(forecast, outcome)}
        seen = {name: printed for name, _, printed in compare(forecast, outcome)}

        assert {k: printed[k] for k in printed.keys() - {"elapsed_s", "max_total_num_tokens"}} == seen
        assert 9.0 == told["max_running_requests"]
        assert pytest.approx(51.05) == told["weights_gib"]
        assert pytest.approx(252_000, rel=0.01) == told["kv_tokens"]

    def test_requests_are_compared_once_they_are_sized(self) -> None:
        """
        Before that the log only repeats what was asked for.
        """
        server = asked(max_running_requests=16)
        card, weights = Card(total_mib=97887, capability="12.0"), Weights()
        forecast = SGLANG.forecast(server, shape(CONFIG_27B), "0.5.9", card, weights, None)
        asked_for = {"max_running_requests": 16.0, "kv_tokens": 131090.0}
        sized = {**asked_for, "max_running_requests": 12.0, "max_total_num_tokens": 131090.0}
        names = [[row[0] for row in compare(forecast, ended(server, f))] for f in (asked_for, sized)]

        assert [["kv_tokens"], ["kv_tokens", "max_running_requests"]] == names

    def test_nothing_to_compare(self) -> None:
        """
        An attempt that printed nothing has no rows.
        """
        forecast = SGLANG.forecast(asked(), shape(CONFIG_27B), "0.5.23", Card(97887), Weights(), None)

        assert () == compare(forecast, ended(asked(), end=End.VANISHED))
