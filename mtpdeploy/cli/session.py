"""
What `up`, `attach` and `--dry-run` share: screens, an open box, and the end of an ascent in words.
"""

from collections.abc import Callable
from enum import Enum

import click
from msgspec import Struct, to_builtins

from mtpdeploy.cli import tables, words
from mtpdeploy.cli.choose import host_from, order_from
from mtpdeploy.cli.documents import ascent_document, exit_status, rehearsal_document
from mtpdeploy.cli.opening import open_tools
from mtpdeploy.cli.options import Asked
from mtpdeploy.cli.output import Answer, print_error, print_json_line, print_verbatim
from mtpdeploy.cli.plain import Plain
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import End
from mtpdeploy.core.events import AnyEvent
from mtpdeploy.core.ladder import Ladder
from mtpdeploy.core.machine import Host
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.deploy import attach as attaching
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.deploy.order import Options, Tools
from mtpdeploy.deploy.rehearsal import Rehearsal, rehearse
from mtpdeploy.deploy.up import bring_up
from mtpdeploy.errors import Interrupted


class Screens(Struct, frozen=True):
    """
    Where an ascent is shown: sentences on stderr, data on stdout where it was asked for.
    """

    as_json: bool = False
    json_events: bool = False
    show_log: bool = True


def up(asked: Asked, options: Options, screens: Screens) -> int | Answer:
    """
    Bring a server up and show how it went; return the exit status, with the document where one is wanted.
    """
    order = order_from(asked, options)
    return _ascend(order.host, asked, screens, lambda tools: bring_up(order, tools), lay_out=True)


def attach(asked: Asked, options: Options, screens: Screens) -> int | Answer:
    """
    Go on with the newest run on the box; return as `up` does.
    """
    host = host_from(asked)

    def story(tools: Tools) -> Ascent:
        return attaching.attach(host, tools, server=asked.server, break_lock=options.break_lock)

    return _ascend(host, asked, screens, story)


def dry_run(asked: Asked, options: Options, screens: Screens) -> int | Answer:
    """
    Show what `up` would do: script, ladder, what would be stopped. Nothing is touched.

    The exit status is that of `up` where something is in its way already.
    """
    order = order_from(asked, options)
    plain = Plain()
    with open_tools(order.host, asked, plain.show, lay_out=True) as tools:
        plan = rehearse(order, tools)
    if plan.problem:
        print_error(plan.problem)
    if screens.as_json:
        return Answer(rehearsal_document(plan, order.ladder), plan.exit_status)
    _show(plan, order.ladder)
    return plan.exit_status


def _show(plan: Rehearsal, ladder: Ladder) -> None:
    """
    What `up` would do, as a script with comments.
    """
    print_verbatim(plan.script + "\n")
    if plan.foreseen is not None:
        for line in words.planned_lines(plan.foreseen.forecast, plan.foreseen.passed):
            click.echo(f"# {line}")
    click.echo(f"# the ladder `{ladder.name}`, by cause, cheapest concession first:")
    for rung in ladder.rungs:
        causes = ", ".join(sorted(words.cause_name(c) for c in rung.causes))
        click.echo(f"#   {rung.name}: gives up {rung.gives_up}; answers {causes}")
    if plan.problem:
        click.echo(f"# the box is not fit for it: {plan.problem.message}")
    if plan.already_running:
        click.echo(f"# runs already in this configuration: {plan.already_running}; nothing would be launched")
    click.echo("# would be stopped:")
    for line in plan.in_the_way or ("nothing",):
        click.echo(f"#   {line}")


def _ascend(
    host: Host, asked: Asked, screens: Screens, story: Callable[[Tools], Ascent], *, lay_out: bool = False
) -> int | Answer:
    teller = Teller(screens)
    try:
        with open_tools(host, asked, teller.show, lay_out=lay_out) as tools:
            ascent = story(tools)
            _tell(ascent, tools, screens, words.same_box(asked.on or host.name, asked.config_file))
    except KeyboardInterrupt:
        raise teller.interrupted(host, words.same_box(asked.on or host.name, asked.config_file)) from None
    status = exit_status(ascent)
    return Answer(ascent_document(ascent, status), status) if screens.as_json else status


class Moment(Enum):
    """
    What is known of the server on the box while an ascent goes on.
    """

    BEFORE = "nothing was launched yet"
    LAUNCHING = "a launch was sent, and its answer did not come yet"
    RUNS = "it runs"
    BETWEEN = "an attempt has failed, and the next one was not launched yet"


class Teller:
    """
    Shows events, and remembers what a Ctrl-C would leave behind.
    """

    def __init__(self, screens: Screens) -> None:
        self._plain = Plain(show_log=screens.show_log)
        self._lines = screens.json_events
        self.moment = Moment.BEFORE

    def show(self, event: AnyEvent) -> None:
        """
        Show one event on every screen.
        """
        match event:
            case events.AttemptBegun():
                self.moment = Moment.LAUNCHING
            case events.Launched() | events.Following():
                self.moment = Moment.RUNS
            case events.AttemptEnded(outcome=outcome) if outcome.end is not End.READY:
                self.moment = Moment.BETWEEN
        self._plain.show(event)
        if self._lines:
            print_json_line(to_builtins(event))

    def interrupted(self, host: Host, on: str) -> Interrupted:
        """
        What Ctrl-C means at this moment; `on` is how a command names the box.
        """
        match self.moment:
            case Moment.BEFORE:
                return Interrupted("interrupted: nothing was launched")
            case Moment.LAUNCHING:
                said = f"interrupted in the middle of a launch: a server may run on `{host.name}`"
            case Moment.RUNS:
                said = f"detached: the server goes on on `{host.name}`"
            case Moment.BETWEEN:
                said = f"detached between two attempts: no server runs on `{host.name}`"
        return Interrupted(said, hint=words.go_on_hint(on))


def _tell(ascent: Ascent, tools: Tools, screens: Screens, on: str) -> None:
    """
    The end of an ascent: the table of attempts, and the hand-over or the reason.
    """
    if screens.json_events:
        print_json_line(to_builtins(events.Finished(at=tools.clock.now(), ascent=ascent)))
    if not ascent.outcomes:
        click.echo(f"launched, and left to itself\n{words.go_on_hint(on)}", err=True)
        return
    click.echo("\n" + tables.attempts(ascent) + "\n", err=True)
    ready = ascent.ready
    if ready is None:
        message = f"error: `{ascent.asked.name}` did not come up on `{ascent.host}`: {ascent.stopped_because}"
        click.secho(message, err=True, fg="red")
        return
    local = Journal(tools.state, ascent.id).run_folder(ready.run)
    for line in words.hand_over(ascent, on=on, local_log=str(local)):
        click.echo(line, err=True)
