"""
What stands behind `demo:`.
"""

from dataclasses import fields

import pytest

from mtpdeploy.demo.home import Hostile
from mtpdeploy.demo.likeness import Likeness, read_likeness
from mtpdeploy.demo.wire import Wire
from mtpdeploy.errors import ConfigError

NUMBER = "wants a number above 0"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("drop_every=abc", "the demo box cannot have `drop_every=abc`", f"`drop_every` {NUMBER}"),
        ("drop_every=0", "the demo box cannot have `drop_every=0`", f"`drop_every` {NUMBER}"),
        ("speed=0", "the demo box cannot have `speed=0`", f"`speed` {NUMBER}"),
        ("speed=-5", "the demo box cannot have `speed=-5`", f"`speed` {NUMBER}"),
        ("speed=nan", "the demo box cannot have `speed=nan`", f"`speed` {NUMBER}"),
        ("speed=inf", "the demo box cannot have `speed=inf`", f"`speed` {NUMBER}"),
        ("speed", "the demo box cannot have `speed=`", f"`speed` {NUMBER}"),
        ("sglang=abc", "the demo box has no SGLang `abc`", "it has 0.5.6 to 0.5.23"),
        ("sglang=0.4.9", "the demo box has no SGLang `0.4.9`", "it has 0.5.6 to 0.5.23"),
        ("sglang=9.9.9", "the demo box has no SGLang `9.9.9`", "it has 0.5.6 to 0.5.23"),
        ("gpu=a100", "the demo box has no card `a100`", "it has rtx-pro-6000, h100"),
        ("listener=loud", "the demo box has no listener `loud`", "it has silent, http"),
        ("watchdog=cat", "the demo box has no watchdog `cat`", "it has warmup, serving"),
        ("nvidia_smi=old", "the demo box has no nvidia-smi `old`", "it has missing, hangs, no-gpu"),
        (
            "killed_at=import",
            "the demo box has no stage `import` for `killed_at`",
            "it has init, weights, loaded, pools, backend, graphs, draft, http, warmup, ready",
        ),
        (
            "stale_port=70000",
            "the demo box cannot have `stale_port=70000`",
            "`stale_port` wants a port from 1 to 65535",
        ),
        (
            "first_starts=-1",
            "the demo box cannot have `first_starts=-1`",
            "`first_starts` wants a whole number from 0",
        ),
        (
            "foreign_gib=-1",
            "the demo box cannot have `foreign_gib=-1`",
            "`foreign_gib` wants a number from 0",
        ),
        (
            "drops_variable=A;B",
            "the demo box cannot have `drops_variable=A;B`",
            "`drops_variable` wants the name of a variable",
        ),
        ("escape=perhaps", "the demo box cannot have `escape=perhaps`", "`escape` wants true or false"),
    ],
)
def test_one_clear_error(text: str, message: str, hint: str) -> None:
    """
    A value that cannot be is told with what may be given.
    """
    with pytest.raises(ConfigError) as caught:
        read_likeness(f"demo:{text}")

    assert (message, hint) == (caught.value.message, caught.value.hint)


@pytest.mark.parametrize("key", [*(f.name for f in fields(Hostile)), *Wire.__struct_fields__])
@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "1e999", "Ä"])
def test_no_value_is_anything_but_taken_or_refused(key: str, text: str) -> None:
    """
    Whatever is given to any key: a likeness, or one error with a hint.
    """
    try:
        read_likeness(f"demo:{key}={text}")
    except ConfigError as error:
        assert error.hint  # noqa: PT017 - it may also be taken


def test_an_unknown_key_lists_all() -> None:
    """
    As the README promises.
    """
    with pytest.raises(ConfigError) as caught:
        read_likeness("demo:hang=graphs")

    assert "the demo box knows no `hang`" == caught.value.message
    assert all(word in caught.value.hint for word in ("hang_at", "drop_every", "sglang"))


def test_what_may_be_given() -> None:
    """
    Text, numbers and switches arrive as what they are.
    """
    given = "sglang=0.5.12.post1,gpu=h100,speed=2.5,hang_at=graphs,escape,first_starts=2,drop_every=3,no_sftp"

    assert Likeness(
        sglang="0.5.12.post1",
        gpu="h100",
        speed=2.5,
        hostile=Hostile(hang_at="graphs", escape=True, first_starts=2),
        wire=Wire(drop_every=3.0, no_sftp=True),
    ) == read_likeness(f"demo:{given}")
