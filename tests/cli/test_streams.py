"""
What may reach a terminal.
"""

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mtpdeploy.cli.output import print_json
from mtpdeploy.cli.plain import shorten_line
from mtpdeploy.cli.reading import OnTerminal
from mtpdeploy.cli.streams import COLOUR, Screen, shown
from mtpdeploy.core.lines import OBEYED

ATTACKS = (
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\",
    "\x1bP$q\x1b\\",
    "\x9b31m",
    "\x9d52;c;eA==\x9c",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "\u061c\u200f",
    "a\rb",
    "\x1b[8mhidden",
    "\x08\x7f\x00",
    "\ud800",
)


def is_harmless(text: str) -> bool:
    """
    Whether a terminal would obey nothing of a text but our colours.
    """
    return OBEYED.search(COLOUR.sub("", text)) is None


class TestShown:
    """
    The last gate before standard output and error.
    """

    @given(st.text())
    @example("\x1b\x1b[31m[31m")
    @example("\x1b[\x1b[31m2J")
    @example("\x1b]\x1b[31m0;x\x07")
    def test_nothing_is_obeyed_whatever_stands_there(self, text: str) -> None:
        """
        Also where what is taken out would leave a command behind.
        """
        assert is_harmless(shown(text))

    @pytest.mark.parametrize("attack", ATTACKS)
    def test_attacks(self, attack: str) -> None:
        """
        Each kind, in the middle of a line, in several writes, through a stream of ours.
        """
        raw = io.BytesIO()
        screen = Screen(raw, encoding="utf-8")
        screen.write(f"before {attack} after\n")
        for character in attack:
            screen.write(character)
        screen.write("\tend\n")
        screen.flush()
        text = raw.getvalue().decode()
        assert is_harmless(text)
        assert text.startswith("before ")
        assert text.endswith("\tend\n")

    def test_our_colours_go_through(self) -> None:
        """
        What click makes of `fg="red"`.
        """
        assert "\x1b[31merror\x1b[0m\n" == shown("\x1b[31merror\x1b[0m\n")


class TestJson:
    """
    Documents for programs, which somebody may look at.
    """

    @pytest.mark.parametrize("attack", [a for a in ATTACKS if a != "\ud800"])
    def test_same_meaning_and_nothing_obeyed(self, attack: str, capsys: pytest.CaptureFixture[str]) -> None:
        """
        What a terminal obeys is escaped.
        """
        print_json({"name": attack, "tag": "\U000e0041"})
        told = capsys.readouterr().out
        assert is_harmless(told)
        assert {"name": attack, "tag": "\U000e0041"} == json.loads(told)


class TestLog:
    """
    Lines of a log on a screen.
    """

    def test_the_key_that_sglang_prints_is_left_out(self) -> None:
        """
        In the line of its arguments, as `up` shows it.
        """
        line = "server_args=ServerArgs(model_path='/m', api_key='SENTINEL', port=30000)"
        assert "SENTINEL" not in shorten_line(line)
        assert "port=30000" in shorten_line(line)

    def test_logs_on_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        """
        Cut anywhere: no command, no key, the last line without an end as well.
        """
        data = b"api_key='SENTINEL'\n\x1b]52;c;eA==\x07fine\nlast"
        with OnTerminal() as out:
            for at in range(len(data)):
                out.write(data[at : at + 1])
        told = capsys.readouterr().out
        assert "SENTINEL" not in told
        assert is_harmless(told)
        assert told.endswith("fine\nlast\n")
