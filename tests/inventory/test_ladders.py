import pytest

from mtpdeploy.core.diagnosis import Cause, Next, Verdict
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.rungs import RUNGS
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.keys import LADDER_KEYS
from mtpdeploy.inventory.ladders import CAUSES
from tests.inventory.conftest import Load

VERDICT = Verdict(Cause.OOM_KV_POOL, Next.CLIMB)
TEXT = """
[ladders.l]
rungs = ["second", "fewer-requests"]
[[ladders.l.rung]]
name = "first"
answers = ["oom-kv-pool", "stalled"]
set = { cuda_graph_max_bs = 8, enable_hierarchical_cache = false }
unset = ["hicache_size"]
env = { A = "1" }
gives_up = "much"
[[ladders.l.rung]]
name = "second"
answers = ["unknown"]
set = { mem_fraction_static = 0.7 }
gives_up = "little"
"""


def test_own_and_built_in_rungs_stand_in_the_order_wanted(load_text: Load) -> None:
    """
    `rungs` gives the order; own rungs that it does not name come after.
    """
    ladder = load_text(TEXT).ladders["l"].value

    assert ["second", "fewer-requests", "first"] == [rung.name for rung in ladder.rungs]
    assert RUNGS["fewer-requests"] is ladder.rungs[1]


def test_an_own_rung_changes_what_its_table_says(load_text: Load) -> None:
    """
    Flags under their newest names are set and taken out, variables set; the rest of the server stays.
    """
    rung = load_text(TEXT).ladders["l"].value.rungs[2]
    server = ServerSpec(name="s", flags={"model_path": "/m", "hicache_size": 200}, env={"B": "2"})

    assert (frozenset({Cause.OOM_KV_POOL, Cause.STALLED}), "much") == (rung.causes, rung.gives_up)
    assert ServerSpec(
        name="s",
        flags={"model_path": "/m", "cuda_graph_max_bs_decode": 8, "enable_hierarchical_cache": False},
        env={"B": "2", "A": "1"},
    ) == rung.change(server, VERDICT, "0.5.9")


def test_an_own_rung_has_nothing_more_to_give_once_taken(load_text: Load) -> None:
    """
    A climb ends: a rung whose change is there already returns None.
    """
    rung = load_text(TEXT).ladders["l"].value.rungs[0]
    server = ServerSpec(name="s", flags={"model_path": "/m", "mem_fraction_static": 0.7})

    assert rung.change(server, VERDICT, "0.5.9") is None


def test_every_cause_can_be_named(load_text: Load) -> None:
    """
    hosts.toml knows each cause by the name of its member, in small letters and with dashes.
    """
    answers = ", ".join(f'"{name}"' for name in CAUSES)
    text = f'[[ladders.l.rung]]\nname = "a"\nanswers = [{answers}]\nset = {{ tp = 1 }}\ngives_up = "x"\n'
    rung = load_text(text).ladders["l"].value.rungs[0]

    assert frozenset(Cause) == rung.causes
    assert "oom-kv-pool" in CAUSES


@pytest.mark.parametrize("name", RUNGS)
def test_every_built_in_rung_can_be_named_and_not_be_taken(name: str, load_text: Load) -> None:
    """
    A built-in rung stands in `rungs`; an own one of its name is refused.
    """
    ladder = load_text(f'[ladders.l]\nrungs = ["{name}"]\n').ladders["l"].value
    text = f'[[ladders.l.rung]]\nname = "{name}"\nanswers = ["unknown"]\nset = {{ tp = 1 }}\ngives_up = "x"\n'
    with pytest.raises(ConfigError) as caught:
        load_text(text)

    assert (RUNGS[name],) == ladder.rungs
    assert (
        f"`hosts.toml`, line 2: `name` in `[ladders.l.rung[0]]`: another rung `{name}` is built in"
        == caught.value.message
    )


def test_an_unknown_rung_is_told_with_the_nearest(load_text: Load) -> None:
    """
    A misspelled rung of one's own or a built-in one.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(TEXT.replace('"second", "fewer-requests"', '"secnd"'))
    with pytest.raises(ConfigError) as built_in:
        load_text('[ladders.l]\nrungs = ["fewer-reqests"]\n')

    assert "`hosts.toml`, line 3: `rungs` in `[ladders.l]`: there is no rung `secnd`" == caught.value.message
    assert "the nearest right name is `second`" == caught.value.hint
    assert "the nearest right name is `fewer-requests`" == built_in.value.hint


def test_the_example_in_the_hint_is_a_rung() -> None:
    """
    What an error tells the user to write can be written.
    """
    assert LADDER_KEYS["rungs"].example.split('"')[1] in RUNGS
