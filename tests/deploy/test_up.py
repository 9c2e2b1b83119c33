"""
The story on this machine: real processes, a simulated SGLang, no SSH.
"""

import http.client
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.json import decode

from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, End
from mtpdeploy.demo.home import Hostile
from mtpdeploy.deploy.ground import clear_way, look
from mtpdeploy.deploy.journal import CLIENTS_FILE, EVENTS_FILE, Client, history
from mtpdeploy.deploy.planner import predictor
from mtpdeploy.deploy.rehearsal import rehearse
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.errors import BoxLocked, BoxUnfit, ConfigError
from mtpdeploy.remote import lock
from mtpdeploy.remote.retry import HEARTBEAT
from tests.deploy.place import FITTING, SEED, Place, causes

MakePlace = Callable[..., Place]


def chat(port: int) -> str:
    """
    What the server answers to a real request from outside.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return str(answer["choices"][0]["message"]["content"])


class TestSeed:
    """
    Qwen3.6-27B, 512 requests, hierarchical cache of 200 GB, `mem_fraction_static` 0.80, SGLang 0.5.9.
    """

    def test_climbs_by_cause_to_a_server_with_mtp(self, place: Place, port: int) -> None:
        """
        512 requests do not fit, nor do 48; 16 do, but then the hierarchical cache must go; then it serves.
        """
        ascent = place.up(place.server(port, SEED), plan=False)

        assert ["fewer-requests", "fewer-requests", "no-hierarchical-cache"] == place.rungs()
        assert [
            Cause.OOM_KV_POOL,
            Cause.OOM_KV_POOL,
            Cause.HICACHE_UNSUPPORTED,
            None,
        ] == causes(ascent)
        assert [512, 48, 16, 16] == [o.server.flags["max_running_requests"] for o in ascent.outcomes]
        assert (
            "enable_hierarchical_cache not given (was True)",
            "hicache_size not given (was 200)",
            "max_running_requests 512 → 16",
        ) == ascent.conceded
        assert ascent.ready is not None
        assert ascent.ready.report is not None
        assert ascent.ready.report.mtp_proven is True
        assert chat(port)

    def test_the_journal_knows_the_box(self, place: Place, port: int) -> None:
        """
        Who worked on the ascent and what the box is like is written down: enough to forecast anew.
        """
        ascent = place.up(place.server(port, SEED), max_attempts=1)
        written = place.state / "ascents" / ascent.id / CLIENTS_FILE
        client = decode(written.read_bytes(), type=Client)

        assert (place.host, lock.whoami(), ()) == (client.host, client.name, client.facts.processes)
        assert isinstance(predictor(SGLANG, client.facts), Callable)  # type: ignore[arg-type]

    def test_the_journal_keeps_the_error_that_ended_a_climb(self, place: Place, port: int) -> None:
        """
        What no outcome tells is written down as well: a flag that this version does not know.
        """
        with pytest.raises(ConfigError) as raised:
            place.up(place.server(port, {**FITTING, "no_such_flag": 1}))
        (folder,) = (place.state / "ascents").iterdir()
        last = decode((folder / EVENTS_FILE).read_bytes().splitlines()[-1], type=events.AnyEvent)

        assert isinstance(last, events.Failed)
        assert (raised.value.message, 2) == (last.error, last.exit_status)
        assert not [event for event in place.told if isinstance(event, events.Failed)]

    def test_every_failure_is_proved_by_its_line(self, place: Place, port: int) -> None:
        """
        The proving line stands in the log under the number that the verdict says.
        """
        ascent = place.up(place.server(port, SEED), max_attempts=1, plan=False)
        outcome = ascent.outcomes[0]
        assert outcome.verdict is not None
        assert outcome.verdict.line is not None
        lines = Path(outcome.log).read_bytes().decode().split("\n")

        assert outcome.verdict.proof in lines[outcome.verdict.line - 1]
        assert outcome.verdict.proof.startswith("RuntimeError: Not enough memory. Please try to increase")


class TestAlreadyRunning:
    """
    The same configuration already serves on the box.
    """

    def test_is_proved_and_not_restarted(self, place: Place, port: int) -> None:
        """
        The second `up` proves what runs, with the same process, and launches nothing.
        """
        first = place.up(place.server(port))
        before = place.home.living()
        place.told.clear()

        second = place.up(place.server(port))

        assert second.already_running
        assert before == place.home.living()
        assert [] == place.of(events.Launched)
        assert [True] == [event.proved for event in place.of(events.Following)]
        assert second.ready is not None
        assert first.ready is not None
        assert first.ready.seconds == second.ready.seconds
        assert second.ready.report is not None
        assert second.ready.report.mtp_proven is True

    def test_force_restarts_it(self, place: Place, port: int) -> None:
        """
        With `--force` the old server is ended, and another one serves.
        """
        place.up(place.server(port))
        before = {pid for pid, _, _ in place.home.living()}

        ascent = place.up(place.server(port), force=True)

        assert ascent.ready is not None
        assert not ascent.already_running
        assert not before & {pid for pid, _, _ in place.home.living()}
        assert ["ours, ended"] == [event.fate for event in place.of(events.InTheWay)]

    @pytest.mark.parametrize("name", ["launch.lock", "latest"])
    def test_nothing_is_ended_where_nothing_can_be_launched(self, place: Place, port: int, name: str) -> None:
        """
        What would make the launch fail is told while the old server serves on.
        """
        place.up(place.server(port))
        before = place.home.living()
        path = place.home.path / ".mtpdeploy" / name
        path.unlink()
        path.mkdir()

        with pytest.raises(BoxUnfit, match=f"Is a directory: {path}"):
            place.up(place.server(port), force=True)

        assert before == place.home.living()

    def test_nothing_is_ended_for_secrets_that_are_not_there(self, place: Place, port: int) -> None:
        """
        A name that has no value on the box is told before anything is ended, and by a dry run, too.
        """
        place.up(place.server(port))
        before = place.home.living()
        server = place.server(port, secrets=("HF_TOKEN",))
        path = place.home.path / ".mtpdeploy" / "env"
        path.touch(0o600)
        path.write_text("OTHER=1\n")

        with pytest.raises(BoxUnfit, match=f"gives no value to HF_TOKEN: {path}"):
            place.up(server)

        assert before == place.home.living()
        assert "gives no value to HF_TOKEN" in str(rehearse(place.order(server), place.tools()).problem)

    def test_nothing_is_ended_between_attempts_either(self, place: Place, port: int) -> None:
        """
        A climb that cannot launch its next attempt ends no server of ours for its sake.
        """
        place.up(place.server(port))
        before = place.home.living()
        order = place.order(place.server(port), force=True)
        facts = structs.replace(
            look(place.tools(), order.server),
            work_dir_writable=False,
            work_dir_problem="Permission denied: /",
        )

        with pytest.raises(BoxUnfit, match="Permission denied: /"):
            clear_way(order, place.tools(), facts)

        assert before == place.home.living()

    def test_another_configuration_takes_its_place(self, place: Place, port: int) -> None:
        """
        Our own server of another configuration is in the way and is ended.
        """
        place.up(place.server(port))
        other = place.server(port, {**FITTING, "max_running_requests": 8})

        ascent = place.up(other)

        assert ascent.ready is not None
        assert other == ascent.ready.server
        assert 1 == len(place.of(events.Cleared))
        assert 1 == place.roles().count("scheduler")

    def test_a_flag_the_version_does_not_know_costs_no_running_server(self, place: Place, port: int) -> None:
        """
        It is refused with the reason before the server in the way is ended for its sake.
        """
        first = place.up(place.server(port))
        newer = place.server(port, {**FITTING, "enable_int8_mamba_checkpoint": True})

        with pytest.raises(ConfigError, match=r"came with SGLang 0\.5\.14; this is 0\.5\.9"):
            place.up(newer)

        again = place.up(place.server(port))
        assert again.already_running
        assert first.outcomes[-1].run == again.outcomes[-1].run

    def test_one_that_is_starting_is_followed(self, make_place: MakePlace, port: int) -> None:
        """
        A server that is just starting in the same configuration is followed to its end.
        """
        place = make_place(speed=60.0)
        server = place.server(port)
        left = place.up(server, detach=True)

        ascent = place.up(server)

        assert () == left.outcomes
        assert ascent.ready is not None
        assert 1 == len(place.of(events.Launched))
        assert 1 == ascent.ready.attempt


class TestDetach:
    """
    Launch and leave.
    """

    def test_launches_and_leaves(self, place: Place, port: int) -> None:
        """
        With `--detach` the call ends before the server is ready, and the lease is free again.
        """
        ascent = place.up(place.server(port), detach=True)

        assert () == ascent.outcomes
        assert [] == place.of(events.Proving)
        assert not (place.home.path / ".mtpdeploy" / "lock").exists()
        assert place.attach().ready is not None


class TestLock:
    """
    One deployment per box at a time.
    """

    def test_held_by_one_that_lives(self, place: Place, port: int) -> None:
        """
        While another client gives signs of life nothing is launched, and the error says who it is.
        """
        tools = place.tools(clock=Renewing(place))
        held = lock.take(
            tools.box,
            work_dir=str(place.home.path / ".mtpdeploy"),
            python=str(place.home.bin / "python"),
            purpose="up other",
            clock=tools.clock,
            told=lambda _text: None,
        )

        with pytest.raises(BoxLocked, match="is deploying on `local`: up other") as caught:
            place.up(place.server(port), tools)

        assert "--break-lock" in caught.value.hint
        assert [] == place.of(events.Launched)
        lock.release(tools.box, held)

    def test_held_by_one_that_died(self, place: Place, port: int) -> None:
        """
        A lease whose holder was a process of this machine that is no more is taken over at once.
        """
        dead = os.fork()
        if dead == 0:
            os._exit(_take_and_die(place))
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(dead, 0)[1])
        assert (place.home.path / ".mtpdeploy" / "lock").exists()
        clock = Renewing(place)

        ascent = place.up(place.server(port), place.tools(clock=clock))

        assert ascent.ready is not None
        assert 0 == clock.renewed

    def test_is_given_back_after_a_failure(self, place: Place, port: int) -> None:
        """
        An ascent that ends in an error leaves no lease behind.
        """
        server = place.server(port)
        place.home.start_stranger("listen", "http", str(port))
        until(lambda: _listens(port))

        with pytest.raises(BoxUnfit, match=f"listens on port {port}"):
            place.up(server)

        assert not (place.home.path / ".mtpdeploy" / "lock").exists()


class TestJournal:
    """
    What is kept here.
    """

    def test_the_copies_are_the_logs_byte_for_byte(self, make_place: MakePlace, port: int) -> None:
        """
        Every attempt's log is kept as it stands on the box, noise and all.
        """
        place = make_place(hostile=Hostile(noise=True))
        server = place.server(port, {**FITTING, "max_running_requests": 48})

        ascent = place.up(server, plan=False)
        past = next(history(place.state))
        kept = [(past.folder / o.run / o.log.rpartition("/")[2]).read_bytes() for o in ascent.outcomes]
        logs = [Path(o.log).read_bytes() for o in ascent.outcomes]

        assert [Cause.OOM_KV_POOL, None] == causes(ascent)
        assert logs[0] == kept[0]
        assert kept[1] == logs[1][: len(kept[1])]
        assert len(kept[1]) > 300_000

    def test_every_attempt_is_in_the_history(self, place: Place, port: int) -> None:
        """
        The journal has the ascent as it was returned.
        """
        ascent = place.up(place.server(port, {**FITTING, "max_running_requests": 48}), plan=False)

        assert [ascent] == [past.ascent for past in history(place.state)]


class TestLost:
    """
    The box goes out of reach.
    """

    def test_a_server_killed_as_a_whole(self, make_place: MakePlace, port: int) -> None:
        """
        SIGKILL of the supervisor and its server leaves no record: VANISHED, told at once.
        """
        place = make_place(hostile=Hostile(hang_at="loaded"))
        tools = place.tools(emit=KillsAt(place, "loading weights"))

        ascent = place.up(place.server(port), tools, max_attempts=1)

        assert [End.VANISHED] == [outcome.end for outcome in ascent.outcomes]
        assert [Cause.VANISHED] == causes(ascent)
        assert not place.roles()


class KillsAt:
    """
    Takes events, and kills every process of the run when a stage is reached.
    """

    def __init__(self, place: Place, stage: str) -> None:
        self._place = place
        self._stage = stage

    def __call__(self, event: events.AnyEvent) -> None:
        """
        Take one.
        """
        self._place.told.append(event)
        if isinstance(event, events.Reached) and event.milestone.stage == self._stage:
            launched = self._place.of(events.Launched)[-1]
            os.killpg(os.getpgid(launched.pid), signal.SIGKILL)
            for pid, _, role in self._place.home.living():
                if "follow" not in role:
                    os.kill(pid, signal.SIGKILL)


class Renewing:
    """
    A clock whose sleep renews the lease on the box, as the other client's reader would.
    """

    def __init__(self, place: Place) -> None:
        self._lease = place.home.path / ".mtpdeploy" / "lock"
        self.renewed = 0

    def now(self) -> float:
        """
        The machine's.
        """
        return time.time()

    def monotonic(self) -> float:
        """
        The machine's.
        """
        return time.monotonic()

    def sleep(self, seconds: float, wake: object = None) -> None:  # noqa: ARG002
        """
        Takes no time; the holder gives a sign of life meanwhile.
        """
        assert seconds > HEARTBEAT
        self.renewed += 1
        os.utime(self._lease)


def _take_and_die(place: Place) -> int:
    box = place.box()
    lock.take(
        box,
        work_dir=str(place.home.path / ".mtpdeploy"),
        python=str(place.home.bin / "python"),
        purpose="up dead",
        clock=Renewing(place),
        told=lambda _text: None,
    )
    box.close()
    return 0


def _listens(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.connect()
    except ConnectionRefusedError:
        return False
    connection.close()
    return True


def until(happened: Callable[[], bool]) -> None:
    """
    Wait until a condition holds.
    """
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
