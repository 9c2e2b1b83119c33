"""
What the journal has of an ascent, whole and damaged.
"""

import os
import secrets
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import json, structs

from mtpdeploy.cli.page import page_of
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.core.outcome import Outcome
from mtpdeploy.deploy.bundle import bundle
from mtpdeploy.deploy.dossier import read_dossier
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.deploy.redaction import Redactor, known_of
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.render import render_report
from tests.deploy.examples import ASKED, AT, BOX, FACTS
from tests.deploy.place import SEED, Place
from tests.deploy.shelf import ID, keep


class TestWhole:
    def test_attempts_with_all_that_belongs_to_them(self, tmp_path: Path) -> None:
        """
        Events, forecast, stages, script and the lines around the proof go to the attempt that they are of.
        """
        dossier = read_dossier(keep(tmp_path, "proof"), SGLANG)
        first, second = dossier.tried

        assert ((), True, None) == (dossier.problems, dossier.finished, dossier.error)
        assert ["ada@laptop"] == [client.name for client in dossier.clients]
        assert [("up", 1), ("up", 1)] == [(t.forecast_by, len(t.passages)) for t in dossier.tried]
        assert [Stage.WEIGHTS_LOADED] == [p.stage for p in first.passages]
        assert list(range(31, 42)) == [line.number for line in first.context]
        assert "proof" == first.context[6].text
        assert (41, 41, "proof") == (first.lines, first.last[-1].number, first.last[-1].text)
        assert first.step is not None
        assert second.step is None
        assert () == second.context
        assert FACTS.gpus[0].total_bytes == second.total

    def test_what_has_no_place_is_listed(self, tmp_path: Path) -> None:
        """
        Fields of an outcome that this version knows nothing of are kept, such as measurements.
        """
        folder = keep(tmp_path)
        path = folder / f"{ID}-2" / "outcome.json"
        raw = json.decode(path.read_bytes())
        raw["weather"] = {"oom_kill": "4 of them"}
        raw["report"]["power_watts"] = 412.5
        raw["report"]["checks"][0]["accept_lengths"] = [2.5, 3.0]
        path.write_bytes(json.encode(raw))
        further = read_dossier(folder, SGLANG).tried[1].further

        assert {
            "weather": {"oom_kill": "4 of them"},
            "report: power_watts": 412.5,
            "answers: accept_lengths": [2.5, 3.0],
        } == further

    def test_an_ascent_that_goes_on(self, tmp_path: Path) -> None:
        """
        Without a word on what comes next, or with an attempt without an outcome, it is not finished.
        """
        folder = keep(tmp_path, finished=False)
        between = read_dossier(folder, SGLANG)
        (folder / f"{ID}-1" / "outcome.json").unlink()
        (folder / "ascent.json").unlink()
        running = read_dossier(folder, SGLANG)

        assert (False, False) == (between.finished, running.finished)
        assert () == running.problems
        assert [None] == [tried.outcome for tried in running.tried]
        assert ("qwen", "box") == (running.ascent.asked.name, running.ascent.host)

    def test_an_ascent_that_launched_nothing(self, tmp_path: Path) -> None:
        """
        Is told by its client and its error.
        """
        journal = Journal(tmp_path, ID)
        journal.client("ada@laptop", BOX, ASKED, FACTS, AT)
        journal.event(events.Failed(AT, error="the port is taken", hint="stop it", exit_status=4))
        dossier = read_dossier(journal.folder, SGLANG)

        assert ((), (), "box", ASKED) == (
            dossier.tried,
            dossier.problems,
            dossier.ascent.host,
            dossier.ascent.asked,
        )
        assert dossier.error is not None

    def test_an_error_that_ended_it(self, tmp_path: Path) -> None:
        """
        It is the end, unless somebody went on since.
        """
        folder = keep(tmp_path, finished=False)
        journal = Journal(tmp_path, ID)
        journal.event(events.Failed(AT + 400, error="the port is taken", hint="stop it", exit_status=4))
        ended = read_dossier(folder, SGLANG)
        keep(tmp_path)

        assert ended.error is not None
        assert 4 == ended.error.exit_status
        assert None is read_dossier(folder, SGLANG).error


class TestReal:
    """
    Real processes, a simulated SGLang.
    """

    def test_a_climb(self, place: Place, port: int) -> None:
        """
        A forecast is worked out from the survey where none was made, and says what the log then said.
        """
        ascent = place.up(place.server(port, SEED), max_attempts=1, plan=False)
        (tried,) = read_dossier(place.state / "ascents" / ascent.id, SGLANG).tried
        assert tried.outcome is not None
        assert tried.outcome.verdict is not None
        assert tried.forecast is not None

        assert tried.outcome.verdict.cause is tried.forecast.cause
        assert ("report", "") == (tried.forecast_by, tried.clocked_by)
        assert [Stage.ARGUMENTS, Stage.WEIGHTS_BEGUN, Stage.WEIGHTS_LOADED] == [
            passage.stage for passage in tried.passages
        ]
        proof = [line.text for line in tried.context if line.number == tried.outcome.verdict.line]
        assert [True] == [tried.outcome.verdict.proof in text for text in proof]

    def test_stages_that_nobody_watched(self, place: Place, port: int) -> None:
        """
        They are told by the log's own stamps.
        """
        ascent = place.up(place.server(port, SEED), max_attempts=1, plan=False)
        folder = place.state / "ascents" / ascent.id
        (watched,) = read_dossier(folder, SGLANG).tried
        assert watched.record is not None
        told = events.Following(AT, record=watched.record, offset=0, stage="launched")
        (folder / "events.jsonl").write_bytes(json.encode(told) + b"\n")
        (joined,) = read_dossier(folder, SGLANG).tried

        assert "log" == joined.clocked_by
        assert [p.line for p in watched.passages] == [p.line for p in joined.passages]
        assert all(passage.seconds is not None for passage in joined.passages)


FILES = ("ascent.json", "events.jsonl", "clients.jsonl", f"{ID}-1/attempt.json", f"{ID}-1/outcome.json")
DAMAGES = {
    "gone": None,
    "empty": b"",
    "cut": b'{"id": ',
    "binary": b"\xff\xfe\x00\n\x80",
    "other": b"[[]]\n3\n",
}


DAMAGE = st.tuples(
    st.sampled_from(FILES),
    st.floats(0, 1),
    st.integers(0, 12),
    st.sampled_from([b"", b"0", b"9e300", b"-1", b"null", b"\xff", b'"', b"{", b"]", b",", b"true", b"\n"]),
)


class TestDamaged:
    @settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(damages=st.lists(DAMAGE, min_size=1, max_size=4))
    def test_no_damage_ends_a_report(
        self, tmp_path: Path, damages: list[tuple[str, float, int, bytes]]
    ) -> None:
        """
        Whatever bytes are replaced in whatever records: page and bundle are made of the rest.
        """
        folder = keep(tmp_path / secrets.token_hex(4))
        for name, where, length, put in damages:
            content = (folder / name).read_bytes()
            at = int(where * len(content))
            (folder / name).write_bytes(content[:at] + put + content[at + length :])
        dossier = read_dossier(folder, SGLANG)
        redactor = Redactor(known_of((client.host for client in dossier.clients), ["ada@laptop"]))
        page = render_report(page_of(redactor.value(dossier), redacted=True))

        assert page.startswith("<!DOCTYPE html>")
        assert bundle(folder, dossier, page, redactor)

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_what_cannot_be_read_is_named(self, tmp_path: Path, name: str, damage: str) -> None:
        """
        The rest is told; a file that need not be there is missed by nobody.
        """
        folder = keep(tmp_path)
        content = DAMAGES[damage]
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        dossier = read_dossier(folder, SGLANG)
        quiet = (damage == "gone" and name.endswith(("clients.jsonl", "outcome.json"))) or (
            damage == "empty" and name.endswith(".jsonl")
        )

        assert [1, 2] == [tried.number for tried in dossier.tried]
        assert quiet == (not [problem for problem in dossier.problems if Path(name).name in problem])

    @pytest.mark.parametrize("name", [*FILES, f"{ID}-1/a.log", f"{ID}-1/launch.sh"])
    def test_a_folder_in_place_of_a_file(self, tmp_path: Path, name: str) -> None:
        """
        Is named as well.
        """
        folder = keep(tmp_path)
        (folder / name).unlink()
        (folder / name).mkdir()

        assert read_dossier(folder, SGLANG).problems

    def test_no_copy_of_a_log(self, tmp_path: Path) -> None:
        """
        Is said, and everything else is told.
        """
        folder = keep(tmp_path)
        (folder / f"{ID}-1" / "a.log").unlink()
        dossier = read_dossier(folder, SGLANG)

        assert ["no copy of the log of attempt 1 can be read here: No such file or directory"] == list(
            dossier.problems
        )
        assert (None, ()) == (dossier.tried[0].lines, dossier.tried[0].last)

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        """
        Tells nothing, and says so.
        """
        dossier = read_dossier(Journal(tmp_path, "a").folder, SGLANG)

        assert ((), False) == (dossier.tried, dossier.finished)
        assert dossier.problems

    def test_a_log_of_one_endless_line(self, tmp_path: Path) -> None:
        """
        A megabyte of it is kept.
        """
        folder = keep(tmp_path)
        (folder / f"{ID}-1" / "a.log").write_bytes(os.urandom(16).hex().encode() * 100_000)
        first = read_dossier(folder, SGLANG).tried[0]

        assert [1 << 20] == [len(line.text) for line in first.last]

    def test_an_outcome_without_its_folder(self, tmp_path: Path) -> None:
        """
        An attempt that only the ascent's own record tells of is told as far as that goes.
        """
        folder = keep(tmp_path)
        (folder / f"{ID}-1").rename(tmp_path / "elsewhere")
        first = read_dossier(folder, SGLANG).tried[0]

        assert isinstance(first.outcome, Outcome)
        assert (1, None) == (first.number, first.record and structs.asdict(first.record))
