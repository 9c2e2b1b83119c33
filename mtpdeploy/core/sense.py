"""
Whether a text that a model wrote can be the work of a model at all.

Only what a sound forward does not produce counts: a greedy reply that is forced on past its end often repeats
whole sentences, and that is no fault.
"""

from enum import StrEnum

from msgspec import Struct

LEAST_WORDS = 12
"""Words from which a text that says only one or two different ones is nothing but repetition."""

LEAST_CHARACTERS = 24
"""Characters from which one character repeated through, or damage through most of it, is no accident."""

MOSTLY = 0.9
"""Share of a text that is all of it but for its beginning: the first token comes from the prefill."""


HALF = 0.5
"""Share of damaged characters from which a text is no text; a few come from characters cut in two."""

DAMAGED = "\ufffd"
"""What stands for bytes that are no UTF-8."""


class Sense(StrEnum):
    """
    What a reply looks like. BROKEN: the forward does not compute; ODD: it may, with a model of no sense.

    EMPTY alone says nothing: a model that has ended its text and must go on may do so in tokens without one.
    """

    SOUND = "sound"
    ODD = "odd"
    EMPTY = "empty"
    BROKEN = "broken"


class Reading(Struct, frozen=True):
    """
    A judgement with its reason, empty where the text is sound.
    """

    sense: Sense
    why: str = ""


def read_reply(text: str, tokens: int) -> Reading:
    """
    Judge a reply of so many tokens by its text alone.

    Exclamation marks alone are what not-a-number logits look like: the token 0 of these vocabularies is "!"
    (vLLM issue 13035). Log probabilities would tell more, but asking for them with speculation ends the
    request, or the server, in some releases.
    """
    shown = "".join(text.split())
    if not shown:
        return Reading(Sense.EMPTY, f"{tokens} tokens without a visible character")
    return _one_character(shown) or _repetition(text.split(), shown) or Reading(Sense.SOUND)


def _one_character(shown: str) -> Reading | None:
    if len(shown) < LEAST_CHARACTERS:
        return None
    most = max(set(shown), key=shown.count)
    share = shown.count(most) / len(shown)
    if most == "!" and share >= MOSTLY:
        return Reading(Sense.BROKEN, "nothing but `!`: the logits are not numbers (NaN)")
    if most == DAMAGED and share >= HALF:
        return Reading(Sense.ODD, "mostly bytes that are no text")
    return Reading(Sense.ODD, f"nothing but `{most}`") if share >= MOSTLY else None


def _repetition(words: list[str], shown: str) -> Reading | None:
    if len(words) >= LEAST_WORDS and len(set(words[1:])) <= 2:
        return Reading(Sense.ODD, f"nothing but `{' '.join(dict.fromkeys(words[1:]))[:40]}`")
    unit = repeated_unit(shown)
    return Reading(Sense.ODD, f"nothing but `{unit}`") if unit else None


def repeated_unit(shown: str, longest: int = 16) -> str:
    """
    The short piece of which a text without blanks consists, its first tenth apart; "" where there is none.

    Up to 16 characters: longer than nearly any token.
    """
    tail = shown[len(shown) // 10 :]
    for length in range(1, longest + 1):
        if len(tail) >= LEAST_WORDS * length and tail[length:] == tail[:-length]:
            return tail[:length]
    return ""
