"""
The proof of speculation as people read it.
"""

import pytest
from msgspec import structs

from mtpdeploy.cli.proof_words import power_words, proof_lines, rate, verdict_of
from mtpdeploy.cli.words import hand_over
from mtpdeploy.core.proof import Power, Proof, Speculation
from tests.deploy.examples import ASCENT, READY, REPORT, SPECULATION


def test_the_whole() -> None:
    """
    The verdict, a row a request, a line for each number of requests at once.
    """
    power = "405 W of 600 W; SM clock 2,430 of 3,090 MHz; 76.00 GiB used; not throttled"

    assert [
        "  proof  speculating",
        "         kind   at once  tokens  steps  accepted  tokens/s",
        "         prose        1     256     88      2.90      63.4",
        "         code         1       -      -         -         -",
        f"         1 at once: 63.4 tokens/s, {power}; 0.16 tokens/J",
        "         4 at once: 214 tokens/s (53.9 each)",
        "         timed by the pieces of the answers, on the box",
    ] == proof_lines(SPECULATION)


@pytest.mark.parametrize("proof", Proof)
def test_every_verdict_has_words(proof: Proof) -> None:
    """
    Where something is wrong it is said loudly, and with its reason.
    """
    first, *_ = verdict_of(Speculation(proof, because="for a reason"))

    assert "for a reason" in first
    said = first.removeprefix("  proof  ").partition(":")[0]
    assert (proof in (Proof.SPECULATING, Proof.NOT_ASKED)) == said.islower()


def test_no_figures_without_answers() -> None:
    """
    A server that answered nothing has a verdict, and no table of dashes.
    """
    found = Speculation(Proof.NOT_ANSWERING, because="died", remedy="start it", power_problem="no nvidia-smi")

    assert ["  proof  NOT ANSWERING: died", "         start it"] == proof_lines(found)


def test_a_server_that_was_busy() -> None:
    """
    Speeds that somebody else had a share of are said to be such.
    """
    said = "         2 requests of somebody else were running: these speeds are what was left"

    assert said in proof_lines(structs.replace(SPECULATION, others=2))


def test_power_that_is_not_known() -> None:
    """
    It is said, and why.
    """
    found = structs.replace(SPECULATION, power_problem="there is no nvidia-smi")

    assert "         power not known: there is no nvidia-smi" in proof_lines(found)


@pytest.mark.parametrize(
    ("power", "said"),
    [
        (
            Power(1, 1, watts=599.6, limit_watts=600.0, held_back=("its power limit",)),
            "600 W of 600 W; held back by its power limit",
        ),
        (Power(1, 1, watts=71.0, sm_mhz=1980.0), "71 W; SM clock 1,980 MHz"),
        (Power(1, 1, held_back=()), "not throttled"),
        (Power(1, 1), ""),
    ],
)
def test_power(power: Power, said: str) -> None:
    """
    What the driver does not tell is left out.
    """
    assert said == power_words(power)


def test_rates() -> None:
    """
    A decimal where it matters.
    """
    assert ["9.5", "99.9", "100", "1,234"] == [rate(value) for value in (9.51, 99.94, 100.2, 1234.4)]


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (Proof.SPECULATING, None),
        (Proof.NOT_ASKED, None),
        (Proof.NOT_SPECULATING, "proof     NOT SPECULATING: a reason"),
        (Proof.NOT_WORTH_IT, "proof     SPECULATING, BUT NOT WORTH IT: a reason"),
        (Proof.NONSENSE, "proof     ANSWERING NONSENSE: a reason"),
    ],
)
def test_the_hand_over_repeats_what_is_wrong(proof: Proof, said: str | None) -> None:
    """
    The last lines of `up` are what people read.
    """
    report = structs.replace(REPORT, speculation=Speculation(proof, because="a reason"))
    ascent = structs.replace(ASCENT, outcomes=(structs.replace(READY, report=report),))
    told = hand_over(ascent, on="--on box", local_log="")
    begun = [n for n, line in enumerate(told) if line.startswith("proof")]

    assert ([said] if said else []) == [told[n] for n in begun]
    assert all(line[:10].isspace() or line[9] == " " != line[10] for line in told)
