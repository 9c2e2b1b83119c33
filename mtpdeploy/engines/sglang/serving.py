"""
What a server's lines tell while it serves, and where that falls short of what was asked for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from mtpdeploy.core.lines import Line
from mtpdeploy.core.proof import USEFUL_ACCEPT_LENGTH
from mtpdeploy.core.units import counted
from mtpdeploy.engines.base import Shortfall

SAMPLE = 64
"""Decode lines that are read out of a piece of a log, evenly over it: a log may have millions."""

ENOUGH = 5
"""
Decode lines from which they speak of the server and not of one request: each tells of the 40 steps since the
last (decode_log_interval; sglang 0.5.6-0.5.23, server_args.py).
"""

LAST_PART = 1 << 14
"""Characters at the end of many lines in which an answered request is looked for: about `SAMPLE` lines."""

NOTHING_ACCEPTED = "speculation-accepts-nothing"
NOT_SPECULATING = "not-speculating"

_DECODES = "] Decode batch"
_SERVES = re.compile(r'\] (?:Prefill batch|INFO: +\S+ - "(?:POST|GET) \S+ HTTP/[\d.]+" 200)')
_ACCEPTED = re.compile(r"accept len: (\d+(?:\.\d+)?)")
_RUN = re.compile(
    rb"(?:^\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[^\[\]\r\n]{0,40}\] "
    rb'(?:Decode batch|Prefill batch|INFO: +[\d.:a-f]+ - ").{0,4000}\n){8,}',
    re.MULTILINE,
)


def ordinary_run(piece: bytes, at: int) -> tuple[int, int]:
    """
    Where in a piece of whole lines, from `at` on, the next run of lines lies that a serving server prints for
    ever and that prove nothing else; both are the piece's end where there is none.

    Source: sglang 0.5.6-0.5.23, scheduler_metrics_mixin.py; uvicorn's access lines.
    """
    found = _RUN.search(piece, at)
    if found is None:
        return len(piece), len(piece)
    begin, end = found.span()
    # A record that begins within a line of another process, or a bar, is for the readers of lines.
    mixed = b"\r" in found[0] or found[0].count(b"[20") != found[0].count(b"\n")
    return (end, end) if mixed else (begin, end)


class Serving:
    """
    A fold over the lines of a server that serves: `decode_lines`, and the last of them; `accept_length` is
    the mean of a sample, None where they tell none; `serves` whether any answered a request.

    Source: sglang 0.5.6-0.5.23, scheduler_metrics_mixin.py: `accept len` is printed where it speculates.
    """

    def __init__(self) -> None:
        self.decode_lines = 0
        self.last = 0
        self.serves = False
        self._accepted = 0.0
        self._told = 0

    @property
    def accept_length(self) -> float | None:
        """
        Tokens a step, the bonus token included.
        """
        return self._accepted / self._told if self._told else None

    def take(self, lines: Sequence[Line], begun: int) -> None:
        """
        The next lines, from that of the number `begun` on.
        """
        decodes = [line for line in lines if _DECODES in line.text and line.number >= begun]
        if not decodes:
            self.serves = self.serves or any(
                _SERVES.search(line.text, 0, 200) for line in lines[-SAMPLE:] if line.number >= begun
            )
            return
        self.serves = True
        self.decode_lines += len(decodes)
        self.last = decodes[-1].number
        sample = decodes[:: max(1, len(decodes) // SAMPLE)]
        told = [float(found[1]) for line in sample if (found := _ACCEPTED.search(line.text, 0, 400))]
        if told:
            # Of one piece the sample stands for all its decode lines.
            self._accepted += sum(told) / len(told) * len(decodes)
            self._told += len(decodes)

    def pass_over(self, after: int, text: str) -> None:
        """
        The next ordinary lines, each with its end; `after` is the number of the line that follows them.
        """
        count = text.count(_DECODES)
        if not count:
            self.serves = self.serves or _SERVES.search(text, len(text) - LAST_PART) is not None
            return
        self.serves = True
        self.decode_lines += count
        self.last = after - text.count("\n", text.rindex(_DECODES))
        told = [float(found) for found in _sampled(text)]
        if told:
            self._accepted += sum(told) / len(told) * count
            self._told += count


def _sampled(text: str) -> Iterator[str]:
    """
    The accept lengths that decode lines tell at places spread evenly over a text.
    """
    for place in range(0, len(text), max(1, len(text) // SAMPLE)):
        line = text.find(_DECODES, place)
        if line >= 0 and (found := _ACCEPTED.search(text, line, line + 400)):
            yield found[1]


def shortfalls(arguments: Mapping[str, str], figures: Mapping[str, float]) -> tuple[Shortfall, ...]:
    """
    What runs, and is not what was asked for, by the figures that the log printed.
    """
    found = (_accepted(arguments, figures), _requests(arguments, figures), _context(figures))
    return tuple(one for one in found if one is not None)


def _accepted(arguments: Mapping[str, str], figures: Mapping[str, float]) -> Shortfall | None:
    algorithm = arguments.get("speculative_algorithm", "None")
    asked = f"{algorithm} was asked for" if algorithm != "None" else ""
    lines, length = figures.get("decode_lines", 0), figures.get("accept_length")
    if lines < ENOUGH or (length is None and not asked):
        return None
    if length is None:
        text = f"it does not speculate: {lines:,.0f} decode lines tell no accept length; {asked}"
        return Shortfall(NOT_SPECULATING, text, speculation=True)
    if length > USEFUL_ACCEPT_LENGTH:
        return None
    text = f"it speculates in vain: accept length {length:.2f} on {lines:,.0f} decode lines"
    return Shortfall(NOTHING_ACCEPTED, f"{text}; {asked}" if asked else text, speculation=True)


def _requests(arguments: Mapping[str, str], figures: Mapping[str, float]) -> Shortfall | None:
    asked, runs = arguments.get("max_running_requests", ""), figures.get("effective_running_requests")
    if runs is None or not asked.isdigit():
        return None
    # Printed for each of the replicas, asked for all of them.
    replicas = max(1.0, figures.get("dp_size", 1.0))
    if runs * replicas >= int(asked):
        return None
    run = counted(round(runs * replicas), "request runs", "requests run")
    text = f"{run} at a time; {int(asked):,} were asked for, the others wait"
    return Shortfall("fewer-requests", text)


def _context(figures: Mapping[str, float]) -> Shortfall | None:
    tokens, context = figures.get("max_total_num_tokens"), figures.get("context_len")
    if not tokens or not context or tokens >= context:
        return None
    text = f"the pool holds {tokens:,.0f} tokens: no request can have the whole context of {context:,.0f}"
    return Shortfall("pool-below-context", text)
