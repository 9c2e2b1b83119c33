"""
Climbs on the real SGLang: a failure of its own, the rung that answers it, and READY.
"""

import pytest

from tests.real.place import NEXTN, PATIENCE, Box, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(3 * PATIENCE)]


NO_STRATEGY = {"mamba_radix_cache_strategy": None, "disable_overlap_schedule": None}


def test_a_strategy_that_the_platform_does_not_take(fresh: Box) -> None:
    """
    The default strategy is refused; no_buffer without overlap serves, and MTP is proved.
    """
    fresh.write_hosts(hybrid={"model": "chain", **NEXTN, **NO_STRATEGY})

    up = fresh.run("up", "hybrid", "--json")
    down = fresh.run("down")

    first, second = up.document["attempts"]
    assert (0, 0) == (up.status, down.status), up.err
    assert ("extra-buffer-unsupported", 1) == (first["cause"], first["exit_status"])
    assert ("no-buffer", None, "ready") == (second["rung"], second["cause"], second["end"])
    assert up.document["accept_length"] > 3.5
    assert up.document["conceded"]
    assert fresh.is_empty()


def test_a_context_that_the_model_does_not_have(fresh: Box) -> None:
    """
    The figure of the refusal is what the next attempt is given.
    """
    fresh.write_hosts(dense={"context_length": 100_000})

    up = fresh.run("up", "dense", "--json")
    fresh.run("down")

    first, second = up.document["attempts"]
    assert 0 == up.status, up.err
    assert ("context-too-long", "shorter-context") == (first["cause"], second["rung"])
    assert [("context_length", 100_000, 4096)] == [
        (change["field"], change["before"], change["after"]) for change in second["changed"]
    ]
    assert up.document["report"]["figures"]["context_length"] == 4096
    assert fresh.is_empty()


def test_a_death_that_passes_by_itself(fresh: Box) -> None:
    """
    Killed from outside: the same configuration once more, which is ready.
    """
    going = fresh.start("up", "dense", "--json").until("launched in", PATIENCE)
    until(lambda: len(fresh.family()) >= 4, "children of the main process")
    fresh.kill("main")

    up = going.done(PATIENCE)
    fresh.run("down")

    first, second = up.document["attempts"]
    assert 0 == up.status, up.err
    assert ("vanished", 137) == (first["cause"], first["exit_status"])
    assert (None, [], "ready") == (second["rung"], second["changed"], second["end"])
    assert fresh.is_empty()
