from collections.abc import Callable

import pytest
from msgspec import structs

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.outcome import ENVIRONMENT, Check, Outcome
from mtpdeploy.demo.home import Hostile
from mtpdeploy.deploy import environment
from mtpdeploy.errors import CommandFailed, ConnectionLost
from tests.deploy.place import Place

MakePlace = Callable[..., Place]


def check_of(outcome: Outcome) -> Check:
    """
    The check of the environment in an outcome's report.
    """
    assert outcome.report is not None
    (check,) = [check for check in outcome.report.checks if check.name == ENVIRONMENT]
    return check


def brought_up(place: Place, port: int, **env: str) -> Outcome:
    """
    The one attempt of a server that is given variables.
    """
    (outcome,) = place.up(place.server(port).with_env(**env), max_attempts=1).outcomes
    return outcome


def test_every_variable_arrived(place: Place, port: int) -> None:
    """
    What the script exports is what the server has.
    """
    check = check_of(brought_up(place, port, MAX_JOBS="2"))

    assert check.passed is True
    assert check.detail.startswith("all ")


def test_a_variable_that_an_image_drops_is_told(make_place: MakePlace, port: int) -> None:
    """
    The server is up all the same; what it lacks is in the report, and said aloud.
    """
    place = make_place(hostile=Hostile(drops_variable="MAX_JOBS"))
    outcome = brought_up(place, port, MAX_JOBS="2")
    check = check_of(outcome)

    assert (End.READY, False) == (outcome.end, check.passed)
    assert outcome.report is not None
    assert (True, check.detail) == (outcome.report.answers, outcome.report.unlike_asked)
    assert check.detail.startswith("missing: MAX_JOBS (process ")
    assert any("missing: MAX_JOBS" in event.text for event in place.of(events.Note))


def test_a_secret_is_known_by_its_name(make_place: MakePlace, port: int) -> None:
    """
    One that the image drops is missing; its value is nowhere.
    """
    place = make_place(hostile=Hostile(drops_variable="HF_TOKEN"))
    secrets = place.home.path / ".mtpdeploy" / "env"
    secrets.parent.mkdir()
    secrets.write_text("HF_TOKEN='hf_very_secret'\n")
    secrets.chmod(0o600)
    server = structs.replace(place.server(port), secrets=("HF_TOKEN",))
    (outcome,) = place.up(server, max_attempts=1).outcomes

    assert "missing: HF_TOKEN" in check_of(outcome).detail
    assert "very_secret" not in str(place.told)


@pytest.mark.parametrize("error", [CommandFailed("broken", hint="x"), ConnectionLost("away")])
def test_a_question_that_fails_fails_nothing(
    error: Exception, place: Place, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The server is ready; what could not be asked is said.
    """
    monkeypatch.setattr(environment, "again", lambda _ask: (_ for _ in ()).throw(error))
    outcome = brought_up(place, port)

    assert (End.READY, None) == (outcome.end, check_of(outcome).passed)
    assert "could not be asked" in check_of(outcome).detail
