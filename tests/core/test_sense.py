"""
Texts that a model may write, and texts that none does.
"""

import pytest

from mtpdeploy.core.sense import Sense, read_reply, repeated_unit


@pytest.mark.parametrize(
    "text",
    [
        "and looked out over the sea. The fog had come in, and nothing could be seen of the ships.",
        "11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
        "one two three four five six seven eight nine ten eleven twelve thirteen",
        "    return n > 1 and all(n % d for d in range(2, n))\n\n\ndef test():\n    assert is_prime(7)\n",
        "The answer is 7. The answer is 7. The answer is 7. The answer is 7. The answer is 7.",
        "你好，世界。今天的天气很好，我们去公园散步吧。",  # noqa: RUF001 - a text without blanks
        "Yes!",
        "Danke.",
        "!!!",
    ],
    ids=["prose", "digits", "words", "code", "a sentence on and on", "no blanks", "short", "a word", "shout"],
)
def test_sound(text: str) -> None:
    """
    Counting, code, short replies and a greedy loop over a sentence are no alarm.
    """
    assert (Sense.SOUND, "") == (read_reply(text, 30).sense, read_reply(text, 30).why)


@pytest.mark.parametrize(
    ("text", "sense", "why"),
    [
        ("", Sense.EMPTY, "30 tokens without a visible character"),
        (" \n\n\t ", Sense.EMPTY, "30 tokens without a visible character"),
        ("!" * 96, Sense.BROKEN, "the logits are not numbers"),
        ("The" + "!" * 90, Sense.BROKEN, "the logits are not numbers"),
        ("! " * 40, Sense.BROKEN, "the logits are not numbers"),
        ("0" * 60, Sense.ODD, "nothing but `0`"),
        ("\ufffd" * 30 + "abcdefgh", Sense.ODD, "mostly bytes that are no text"),
        (" the" * 40, Sense.ODD, "nothing but `the`"),
        ("Well" + " a b" * 20, Sense.ODD, "nothing but `a b`"),
        ("<unused7>" * 20, Sense.ODD, "nothing but `"),
    ],
)
def test_nonsense(text: str, sense: Sense, why: str) -> None:
    """
    What the forward cannot have meant is broken; repetition alone is odd, and may be a model of no sense.
    """
    found = read_reply(text, 30)

    assert sense is found.sense
    assert why in found.why


def test_the_unit_of_a_repetition() -> None:
    """
    The shortest one, whatever stood before it.
    """
    assert repeated_unit("x" + "ab" * 30) in ("ab", "ba")
    assert "" == repeated_unit("abcdefghijklmnopqrstuvwxyz0123456789")
