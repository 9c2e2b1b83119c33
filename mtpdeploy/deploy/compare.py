"""
With and without: one server restarted without speculation and measured, then restarted with it and measured.

Both start afresh and are asked the same. Each restart is an ascent of its own in the journal. What comes back
is the very configuration that ran, whatever had been conceded for it.
"""

from enum import Enum
from threading import Event

from msgspec import Struct, structs

from mtpdeploy.core.launch import AttemptRecord, Original
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.outcome import Ascent, Report
from mtpdeploy.core.proof import Pair, compare, measured
from mtpdeploy.core.server import ServerSpec, changes
from mtpdeploy.core.units import counted
from mtpdeploy.deploy.attach import as_begun
from mtpdeploy.deploy.background import in_background
from mtpdeploy.deploy.ground import look
from mtpdeploy.deploy.order import Order, Tools
from mtpdeploy.deploy.proof import running
from mtpdeploy.deploy.up import ascent_id, begin
from mtpdeploy.deploy.verify import verifier
from mtpdeploy.errors import BoxUnfit, ConfigError, MtpDeployError
from mtpdeploy.remote import http, lock
from mtpdeploy.remote.retry import HEARTBEAT, again
from mtpdeploy.remote.stale import requests_running

TRIES = 2
"""Attempts of each restart: one more where the first fails for a reason that passes by itself."""

SPECULATIVE = "speculative_"
"""How the names of all flags of speculation begin (0.5.6-0.5.23, server_args.py)."""

ONLY_WITH = ("enable_multi_layer_eagle", "enable_linear_replayssm_spec")
"""Those that begin otherwise and mean nothing, or are refused, without speculation (0.5.7 and 0.5.17 on)."""


class Phase(Enum):
    """
    How far a comparison has come, as what it means for the server if it ended now.
    """

    BEFORE = "nothing was restarted"
    WITHOUT = "the server is being restarted, or runs, without speculation"
    WITH = "the server is being restarted with speculation as before"


class Comparison(Struct, frozen=True):
    """
    What came of it: both reports (None where that start failed), and the speeds side by side.

    `problem` says why there is nothing to compare, empty where there is.
    """

    server: str
    run: str
    without: Report | None
    speculating: Report | None
    pairs: tuple[Pair, ...] = ()
    problem: str = ""


def without_speculation(server: ServerSpec) -> ServerSpec:
    """
    The same server without any flag of speculation.
    """
    gone = [name for name in server.flags if name.startswith(SPECULATIVE) or name in ONLY_WITH]
    return server.with_flags(**dict.fromkeys(gone))


class Comparer:
    """
    One comparison of what runs on a box. `phase`, and which `server` it is of, may be read at any time, after
    an interruption too.

    `take` restarts it although it is working on requests.
    """

    def __init__(
        self,
        host: Host,
        tools: Tools,
        *,
        server: str | None = None,
        take: bool = False,
        break_lock: bool = False,
    ) -> None:
        self._host = host
        self._tools = tools
        self._name = server
        self._take = take
        self._break_lock = break_lock
        self.phase = Phase.BEFORE
        self.server = server or ""

    def run(self) -> Comparison:
        """
        Restart twice, and measure each time. A start that fails is told in the comparison.

        Raises:
            ConfigError: it was not asked to speculate.
            BoxUnfit: there is no run, it does not live, is working on requests or is left over from a
                comparison; something came into the way.
            BoxLocked: somebody else deploys there.
            ConnectionLost: the box went out of reach for good.
        """
        tools = self._tools
        facts, record = running(tools, server=self._name)
        self.server = record.asked.name
        if record.original is not None:
            raise BoxUnfit(
                f"`{record.server.name}` runs {record.purpose}, which was broken off",
                hint="`mtpdeploy attach` restarts it with speculation as before; compare then",
            )
        if record.server.mtp is None:
            raise ConfigError(
                f"`{record.server.name}` runs without speculation: there is nothing to compare",
                hint="give it speculative_ flags, bring it up, and compare then",
            )
        if not self._take:
            self._require_idle(facts, record)
        order = self._order(record)
        lease = lock.take(
            tools.box,
            work_dir=facts.work_dir,
            python=facts.python or "python3",
            purpose=f"compare {record.server.name} with and without speculation",
            clock=tools.clock,
            told=tools.note,
            force=self._break_lock,
        )
        try:
            return self._both(order, record, lease)
        except MtpDeployError:
            tools.note(f"the comparison broke off: {self.phase.value}; `mtpdeploy attach` brings it back")
            raise
        finally:
            lock.release(tools.box, lease)

    def _require_idle(self, facts: Facts, record: AttemptRecord) -> None:
        ports = (record.server.port,)
        count = requests_running(self._tools.box, ports, facts.python or http.PYTHON)
        if count:
            raise BoxUnfit(
                f"`{record.server.name}` is working on {counted(count, 'request', 'requests')}",
                hint="a comparison ends them: wait until it is idle, or give `--take`",
            )

    def _order(self, record: AttemptRecord) -> Order:
        begun = as_begun(self._host, self._tools, record)
        options = structs.replace(
            begun.options, max_attempts=TRIES, force=True, detach=False, plan=False, allow_no_mtp=True
        )
        return structs.replace(begun, server=record.server, options=options)

    def _both(self, order: Order, record: AttemptRecord, lease: lock.Lease) -> Comparison:
        plain = without_speculation(record.server)
        self._tools.note("1 of 2: restarting without speculation")
        self.phase = Phase.WITHOUT
        original = Original(record.run, record.asked, record.server)
        first, without = self._measure(
            structs.replace(order, server=plain, original=original), plain, lease, record.run
        )
        self._tools.note("2 of 2: restarting with speculation as before")
        self.phase = Phase.WITH
        second, speculating = self._measure(order, record.asked, lease, record.run)
        problem = _problem(first, plain, second, record.server)
        found = Comparison(record.server.name, _run(second), without, speculating, problem=problem)
        if problem or not without or not speculating:
            return found
        plainly, proof = without.speculation, speculating.speculation
        if plainly is None or proof is None:
            return found
        pairs = compare(plainly, proof)
        report = structs.replace(speculating, speculation=measured(proof, pairs))
        return structs.replace(found, speculating=report, pairs=pairs)

    def _measure(
        self, order: Order, asked: ServerSpec, lease: lock.Lease, compares: str
    ) -> tuple[Ascent, Report | None]:
        """
        Launch a server, and ask it everything at length once it is ready; None where it does not get so far.
        """
        tools = self._tools
        facts = look(tools, order.server)
        ascent = Ascent(
            id=ascent_id(tools.clock.now(), order), host=order.host.name, asked=asked, compares=compares
        )
        ended = begin(order, tools, facts, lease, ascent).from_start()
        if ended.ready is None:
            return ended, None
        facts, record = running(tools, server=order.server.name)
        return ended, self._report(facts, record, lease)

    def _report(self, facts: Facts, record: AttemptRecord, lease: lock.Lease) -> Report:
        """
        The full report; no log is followed meanwhile, so the lease is renewed here.
        """
        tools, over = self._tools, Event()
        tools.note("measuring: each kind of text alone, then all at once")
        asks = verifier(tools, record, facts, full=True)
        report = in_background(lambda: again(asks.report), "measurement")
        report.add_done_callback(lambda _: over.set())
        while not report.done():
            again(lambda: lock.keep(tools.box, lease))
            tools.clock.sleep(HEARTBEAT, over)
        again(lambda: lock.keep(tools.box, lease))
        return report.result()


def _run(ascent: Ascent) -> str:
    return ascent.outcomes[-1].run if ascent.outcomes else ""


def _problem(first: Ascent, plain: ServerSpec, second: Ascent, wanted: ServerSpec) -> str:
    """
    Why there is nothing to compare: what matters for what runs now goes first.
    """
    if second.ready is None:
        why = _cause(second)
        return f"the restart with speculation failed ({why}): nothing runs now; `mtpdeploy up` starts it"
    differing = changes(wanted, second.ready.server)
    if differing:
        return f"with speculation it only came back after conceding {'; '.join(map(str, differing))}"
    if first.ready is None:
        return f"without speculation it did not come up ({_cause(first)}); it runs with it again"
    differing = changes(plain, first.ready.server)
    if differing:
        return f"without speculation it only came up after conceding {'; '.join(map(str, differing))}"
    return ""


def _cause(ascent: Ascent) -> str:
    last = ascent.outcomes[-1] if ascent.outcomes else None
    return str(last.verdict.cause) if last and last.verdict else ascent.stopped_because
