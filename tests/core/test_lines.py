"""
Bytes to lines.
"""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from mtpdeploy.core.lines import Line, Lines, terminal_view

LOGS = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r", b"\r\n", b"\0", "✓".encode(), "ü".encode(), b"\xff", b"\xe2\x9c"]),
        st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")),
    ),
    max_size=30,
).map(b"".join)


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    """
    `data` cut at some places.
    """
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [
        data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True) if start < end
    ]


def lines_of(chunks: list[bytes], limit: int = 1 << 20) -> list[Line]:
    """
    All lines of a stream.
    """
    lines = Lines(limit=limit)
    return [line for chunk in chunks for line in lines.feed(chunk)] + lines.finish()


class TestLines:
    """
    Lines for people and signatures.
    """

    @given(LOGS, st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from([1, 3, 5, 1 << 20]))
    def test_any_chunking_gives_the_same_lines(self, data: bytes, cuts: list[int], limit: int) -> None:
        """
        Where the line to the box cuts the stream does not show, short limit or long.
        """
        whole = lines_of([data], limit)

        assert whole == lines_of(chunked(data, cuts), limit)

    @given(LOGS, st.lists(st.integers(0, 10_000), max_size=12))
    def test_numbers_are_those_of_line_feeds(self, data: bytes, cuts: list[int]) -> None:
        """
        A line's number is the one `sed -n Np` prints, and its text is what stands there.
        """
        found = {line.number: line.text for line in lines_of(chunked(data, cuts)) if not line.bar}
        expected = {}
        for number, raw in enumerate(data.split(b"\n"), 1):
            expected[number] = raw.removesuffix(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
        if not expected[data.count(b"\n") + 1]:
            del expected[data.count(b"\n") + 1]

        assert expected == found

    def test_states_of_a_bar_are_lines_of_their_own_with_one_number(self) -> None:
        """
        A bar shows while it moves, not only when its line ends.
        """
        lines = Lines()

        assert [Line(1, "first"), Line(2, "  0%", bar=True)] == lines.feed(b"first\r\n\r  0%\r 50%")
        assert " 50%" == lines.pending
        assert [Line(2, " 50%", bar=True), Line(2, "100%"), Line(3, "next")] == lines.feed(b"\r100%\nnext\n")

    def test_a_line_is_not_a_bar_because_its_end_came_in_two_pieces(self) -> None:
        """
        A carriage return at the end of a chunk waits for what comes next.
        """
        lines = Lines()

        assert [] == lines.feed(b"windows\r")
        assert [Line(1, "windows")] == lines.feed(b"\n")

    def test_a_very_long_line_is_cut_between_characters_and_counted(self) -> None:
        """
        Memory does not grow with a line that never ends; what is missing is told.
        """
        lines = Lines(limit=5)
        for _ in range(1000):
            lines.feed("ää".encode())

        assert "ää" == lines.pending
        assert [Line(1, "ää", cut=3995), Line(2, "x")] == lines.feed(b"\nx\n")

    def test_a_line_without_an_end_comes_at_the_end(self) -> None:
        """
        The last words of a killed process often lack a line feed.
        """
        lines = Lines(first=7)
        lines.feed(b"a\nKilled")

        assert [Line(8, "Killed")] == lines.finish()
        assert [] == lines.finish()


class TestTerminalView:
    """
    What is safe to print.
    """

    def test_removes_what_a_terminal_obeys(self) -> None:
        """
        Colours, cursor movements, window titles, links, clipboard writes, bells and 8-bit controls go.
        """
        text = (
            "\x1b[1;31mred\x1b[0m \x1b[2K\x1b[1Aup \x1b]0;title\x07t \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"
            " \x1b]52;c;ZXZpbA==\x07\x1bP+q\x1b\\ \x9b31mc1 \x07\x08\0\x7f\x1bc\x1b(B tab\there \u202eabc"
        )

        assert "red up t link  c1  tab\there abc" == terminal_view(text)

    @given(st.text(st.characters(codec="utf-8") | st.sampled_from("\x1b[]()\x07\x9b\\;m0")))
    def test_nothing_left_can_control_a_terminal(self, text: str) -> None:
        """
        No control character but the tab survives, whatever was hidden in what.
        """
        shown = terminal_view(text)

        assert set() == {c for c in shown if unicodedata.category(c) == "Cc"} - {"\t"}

    @given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S"))))
    def test_plain_text_stays(self, text: str) -> None:
        """
        Letters, digits, signs of any language are shown as they are.
        """
        assert text == terminal_view(text)
