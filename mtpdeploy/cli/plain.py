"""
A line per event: for logs, pipes and terminals alike.
"""

import re
import sys
from threading import Lock
from typing import TextIO

import click

from mtpdeploy.cli.words import sentence
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.lines import terminal_view
from mtpdeploy.core.units import counted
from mtpdeploy.deploy.redaction import Redactor

COLOURS = {
    events.AttemptBegun: "cyan",
    events.Doomed: "yellow",
    events.LineLost: "yellow",
    events.NextStep: "cyan",
    events.InTheWay: "yellow",
}
"""What stands out on a terminal; everything can be understood without."""

LINE_WIDTH = 2000
"""Characters of a log line that are shown: the server_args line alone has 19,000 (SGLang 0.5.23)."""


SHOWN_AT_ONCE = 400
"""
Lines of one burst that are shown. A start prints about 100 in all, a traceback 60 (real logs of 0.5.12 and
0.5.23); a log that floods would otherwise be read as slowly as a terminal scrolls.
"""


_REDACTOR = Redactor()
_TELLING = re.compile(
    r"(?i)key|token|pass|secret|credential|bearer|basic|eyJ|@|hf_|sk-|gh[po]_|glpat|xox|AKIA|github_pat"
)
"""What a line with a secret has in it (`Redactor`): looked for first, since most have not."""


class Plain:
    """
    Prints events as sentences, and the server's log lines as they come.
    """

    def __init__(self, out: TextIO | None = None, *, show_log: bool = True) -> None:
        self._out = out or sys.stderr
        self._show_log = show_log
        self._lock = Lock()

    def show(self, event: events.AnyEvent) -> None:
        """
        Show one event; may be called from any thread.
        """
        with self._lock:
            if isinstance(event, events.LogLines):
                self._log(event)
                return
            text = sentence(event)
            if text:
                self._print(text, self._colour(event))

    def _log(self, event: events.LogLines) -> None:
        if not self._show_log:
            return
        lines = [line for line in event.lines if line and not line.isspace()]
        left_out = len(lines) - SHOWN_AT_ONCE
        if left_out > 0:
            half = SHOWN_AT_ONCE // 2
            lines[half:-half] = [
                f"… {counted(left_out, 'line is', 'lines are')} not shown; the copy of the log has them …"
            ]
        if lines:
            self._print("\n".join(f"  | {shorten_line(line)}" for line in lines), "bright_black")

    def _colour(self, event: events.AnyEvent) -> str | None:
        if isinstance(event, events.AttemptEnded):
            return "green" if event.outcome.end is End.READY else "red"
        return COLOURS.get(type(event))

    def _print(self, text: str, colour: str | None) -> None:
        click.secho("\n".join(map(terminal_view, text.split("\n"))), file=self._out, fg=colour)


def shorten_line(line: str) -> str:
    """
    A log line as it is shown: not too long, and without secrets (SGLang prints its `api_key`).
    """
    shown = terminal_view(line)
    shown = _REDACTOR.text(shown) if _TELLING.search(shown) else shown
    return shown if len(shown) <= LINE_WIDTH else shown[: LINE_WIDTH - 1] + "…"
