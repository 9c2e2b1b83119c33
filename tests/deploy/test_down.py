"""
Stopping, and the proof that everything is gone.
"""

import socket
import subprocess
from collections.abc import Callable

import pytest

from mtpdeploy.core.diagnosis import End
from mtpdeploy.demo.home import Hostile
from mtpdeploy.deploy.background import in_background
from mtpdeploy.deploy.down import take_down
from mtpdeploy.errors import BoxUnfit
from tests.deploy.place import Place
from tests.deploy.test_up import until

MakePlace = Callable[..., Place]


def free_mib(place: Place) -> int:
    """
    What nvidia-smi says is free.
    """
    query = ["--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    answer = subprocess.run(
        [place.home.bin / "nvidia-smi", *query],
        env=place.home.environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return int(answer.stdout)


def is_free(port: int) -> bool:
    """
    Whether the port can be listened on.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class TestDown:
    def test_everything_is_gone(self, place: Place, port: int) -> None:
        """
        No process of the home, the port free, the memory back, nothing left; and the call says so.
        """
        before = free_mib(place)
        ascent = place.up(place.server(port))
        while_up = free_mib(place)
        assert ascent.ready is not None

        down = take_down(place.tools(), server=None)

        assert (ascent.ready.run,) == down.runs
        assert () == down.left
        assert down.ended
        assert not place.roles()
        assert is_free(port)
        assert before == free_mib(place)
        assert while_up < before - 50_000

    def test_an_escaped_grandchild_is_found(self, make_place: MakePlace, port: int) -> None:
        """
        A child in a session of its own carries the run's marker and is ended, too.
        """
        place = make_place(hostile=Hostile(escape=True))
        place.up(place.server(port))
        until(lambda: "escaped" in place.roles())

        down = take_down(place.tools(), server=None)

        assert () == down.left
        assert not place.roles()

    def test_one_that_ignores_term_is_killed(
        self, make_place: MakePlace, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        What does not go when asked is killed, and counted.
        """
        monkeypatch.setattr("mtpdeploy.deploy.down.GRACE", 0.5)
        place = make_place(hostile=Hostile(hang_at="loaded", ignore_term=True))
        place.up(place.server(port), detach=True)
        until(lambda: len(place.roles()) > 2)

        down = take_down(place.tools(), server=None)

        assert down.killed
        assert () == down.left
        assert not place.roles()

    def test_memory_that_comes_back_late_is_waited_for(self, make_place: MakePlace, port: int) -> None:
        """
        The call ends when the driver has freed the memory, not when the process is gone.
        """
        place = make_place(hostile=Hostile(free_late_s=1.5))
        before = free_mib(place)
        place.up(place.server(port))

        down = take_down(place.tools(), server=None)

        assert () == down.left
        assert before == free_mib(place)

    def test_whoever_follows_is_told(self, make_place: MakePlace, port: int) -> None:
        """
        For a client that follows, an ordered stop is STOPPED, and no reason to climb on.
        """
        place = make_place(hostile=Hostile(hang_at="graphs"))
        following = in_background(lambda: place.up(place.server(port)), "up")
        until(lambda: "scheduler" in place.roles())

        take_down(place.tools(), server=None)
        ascent = following.result(timeout=30)

        assert [End.STOPPED] == [outcome.end for outcome in ascent.outcomes]
        assert ascent.outcomes[0].verdict is not None
        assert "mtpdeploy down" in ascent.outcomes[0].verdict.because
        with pytest.raises(BoxUnfit, match=r"was stopped by .*mtpdeploy down"):
            place.attach()

    def test_only_the_named_server(self, place: Place, port: int) -> None:
        """
        Another server of ours than the named one is left alone.
        """
        place.up(place.server(port))
        before = place.home.living()

        down = take_down(place.tools(), server="other")

        assert () == down.runs
        assert before == place.home.living()

    def test_strangers_are_left_alone(self, place: Place) -> None:
        """
        What is not ours is not touched, whatever it holds.
        """
        place.home.start_stranger("memory", "2")
        until(lambda: place.roles() == ["stranger memory"])
        before = place.home.living()

        down = take_down(place.tools(), server=None)

        assert () == down.runs
        assert before == place.home.living()
