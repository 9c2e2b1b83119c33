"""
Reading logs: what is kept here first, then what the box has beyond it.
"""

import queue
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, cast

import click

from mtpdeploy.cli.choose import host_from
from mtpdeploy.cli.opening import open_tools
from mtpdeploy.cli.options import Asked
from mtpdeploy.cli.plain import Plain
from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.lines import Lines, terminal_view
from mtpdeploy.core.machine import Facts, RunRecord
from mtpdeploy.deploy.aftermath import told_later
from mtpdeploy.deploy.attach import newest
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.journal import history, state_directory
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.redaction import Redactor
from mtpdeploy.deploy.up import read_outcome, read_record
from mtpdeploy.errors import ConfigError
from mtpdeploy.remote.follow import QUEUE_EVENTS, Follower, LogSource, reader_on
from mtpdeploy.remote.frames import Ended, FollowEvent, Gone, Heartbeat, LineBack, LineLost, NewBytes
from mtpdeploy.remote.link import HEAD


def print_local(asked: Asked, attempt: int | None) -> int:
    """
    Print the copy of a log that is kept here.

    Raises:
        ConfigError: there is none.
    """
    for past in history(state_directory(), lambda sentence: click.echo(sentence, err=True)):
        if asked.server not in (None, past.ascent.asked.name) or asked.on not in (None, past.ascent.host):
            continue
        outcomes = [o for o in past.ascent.outcomes if attempt in (None, o.attempt)]
        if outcomes:
            path = past.folder / outcomes[-1].run / Path(outcomes[-1].log).name
            try:
                file = path.open("rb")
            except OSError as error:
                raise ConfigError(
                    f"the copy cannot be read: {error.strerror}: {path}",
                    hint="without `--local` the box is asked",
                ) from error
            with file, _printed() as out:
                _copy_out(file, out)
            return 0
    raise ConfigError("no such log is kept here", hint="without `--local` the box is asked")


def print_remote(asked: Asked, attempt: int | None, *, follow: bool) -> int:
    """
    Print the log of a run on the box, and with `follow` what comes after.

    Raises:
        ConfigError: there is no such run.
    """
    with open_tools(host_from(asked), asked, Plain().show) as tools:
        facts = look(tools, None)
        run, record = _choose(facts, asked.server, attempt)
        try:
            with _printed() as out:
                _write_log(out, tools, facts, run, record, follow=follow)
        except KeyboardInterrupt:
            click.echo("stopped following; the server goes on", err=True)
    return 0


class OnTerminal(RawIOBase):
    """
    A log on a terminal: line by line, without what a terminal obeys and without secrets.
    """

    def __init__(self) -> None:
        self._lines = Lines()
        self._redactor = Redactor()

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """
        Show the lines that `data` completes.
        """
        for line in self._lines.feed(bytes(data)):
            click.echo(self._redactor.text(terminal_view(line.text)))
        return len(data)

    def close(self) -> None:
        """
        Show the last line, if it has no end.
        """
        if not self.closed:
            for line in self._lines.finish():
                click.echo(self._redactor.text(terminal_view(line.text)))
        super().close()


@contextmanager
def _printed() -> Iterator[IO[bytes]]:
    """
    Where a log is printed: byte for byte, unless that is a terminal.
    """
    if not sys.stdout.isatty():
        yield sys.stdout.buffer
        return
    with OnTerminal() as out:
        yield cast("IO[bytes]", out)


def save_remote(
    asked: Asked, attempt: int | None, out: IO[bytes]
) -> tuple[RunRecord, AttemptRecord, dict[str, str] | None]:
    """
    Write the log of a run on the box into a file, as far as it goes now; returns whose it is, and what the
    box tells of its end (None where it has not failed).

    Raises:
        ConfigError: there is no such run.
    """
    with open_tools(host_from(asked), asked, Plain().show) as tools:
        facts = look(tools, None)
        run, record = _choose(facts, asked.server, attempt)
        _write_log(out, tools, facts, run, record, follow=False)
        after = told_later(run, record, read_outcome(run), facts, tools)
    return run, record, after


def _choose(facts: Facts, server: str | None, attempt: int | None) -> tuple[RunRecord, AttemptRecord]:
    run, record = newest(facts, server=server)
    if attempt is None or record.attempt == attempt:
        return run, record
    for other in facts.runs:
        of = read_record(other)
        if of is not None and of.ascent == record.ascent and of.attempt == attempt:
            return other, of
    raise ConfigError(
        f"the ascent `{record.ascent}` has no attempt {attempt} on the box", hint="see `mtpdeploy history`"
    )


def _write_log(
    out: IO[bytes], tools: Tools, facts: Facts, run: RunRecord, record: AttemptRecord, *, follow: bool
) -> None:
    """
    The copy that is kept here, then what the box has beyond it; the copy itself is left alone.
    """
    copy = tools.state / "ascents" / record.ascent / record.run / record.log
    shown, head = _kept(copy, out)
    if not follow and shown >= run.log_bytes:
        return
    arriving: queue.Queue[FollowEvent] = queue.Queue(QUEUE_EVENTS)
    follower = Follower(
        reader_on(tools.box, facts.python or "python3"),
        LogSource(run_dir=f"{facts.work_dir}/runs/{run.name}", log=record.log, port=record.server.port),
        sink=lambda _data: None,
        offset=shown,
        head=head,
        events=arriving,
        clock=tools.clock,
    )
    with follower:
        for data in _bytes(arriving):
            out.write(data)
            out.flush()
            shown += len(data)
            if not follow and shown >= run.log_bytes:
                return


def _bytes(arriving: "queue.Queue[FollowEvent]") -> Iterator[bytes]:
    while True:
        match arriving.get():
            case NewBytes(data=data):
                yield data
            case Ended():
                return
            case Gone(reason=reason):
                click.echo(f"the line to the box is gone: {reason}", err=True)
                return
            case LineLost():
                click.echo("the line to the box broke; trying to come back", err=True)
            case LineBack() | Heartbeat():
                continue


def _kept(copy: Path, out: IO[bytes]) -> tuple[int, bytes]:
    """
    Write the copy that is kept here: its length, and what it begins with. Without one the box has it all.
    """
    try:
        file = copy.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        return 0, b""
    except OSError as error:
        click.echo(f"the copy kept here cannot be read: {error.strerror}: {copy}", err=True)
        return 0, b""
    with file:
        return _copy_out(file, out)


def _copy_out(file: BufferedReader, out: IO[bytes]) -> tuple[int, bytes]:
    """
    Copy a file: its length, and what it begins with, by which the log is known again.
    """
    head = file.read(HEAD)
    out.write(head)
    shutil.copyfileobj(file, out, 1 << 20)
    out.flush()
    return file.tell(), head
