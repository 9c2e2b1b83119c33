"""
What is wrong with a box: each one clear error with something to do, its exit status, and nothing half-done.
"""

import getpass
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.remote import connect
from tests.e2e.client import Client, Done, Here, none_left
from tests.e2e.rented import Rented
from tests.fakes.sshd import free_port, make_key

Rent = Callable[..., Rented]
RunHere = Callable[[Client], Here]


def refused(done: Done, status: int) -> str:
    """
    The one error of a command that was refused; it has a hint, and no traceback.
    """
    assert status == done.status, done.err
    assert 1 == len(done.errors), done.err
    assert "\nhint: " in done.err
    assert "Traceback" not in done.err
    return done.errors[0].removeprefix("error: ")


def untouched(rented: Rented) -> bool:
    """
    Whether nothing of ours stands or runs on the box.
    """
    runs = rented.home.path / ".mtpdeploy" / "runs"
    return none_left(rented.home) and not (runs.is_dir() and list(runs.iterdir()))


class TestTheWay:
    """
    The box cannot be reached or entered: exit status 3.
    """

    def test_refused_port(self, rented: Rented, here: RunHere) -> None:
        """
        Nothing listens there.
        """
        port = free_port()

        done = here(rented.client).run("up", "fits", "--on", f"root@127.0.0.1:{port}")

        assert f"nothing listens at root@127.0.0.1:{port}: connection refused" == refused(done, 3)

    def test_unreachable_address(self, rented: Rented, here: RunHere) -> None:
        """
        An address that no packet gets to.
        """
        done = here(rented.client).run("up", "fits", "--on", "root@255.255.255.255:22")

        assert refused(done, 3).startswith("root@255.255.255.255:22 cannot be reached: ")

    def test_silence(self, rented: Rented, here: RunHere, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A port that accepts and then says nothing.
        """
        monkeypatch.setattr(connect, "BANNER_LIMIT", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            done = here(rented.client).run("up", "fits", "--on", f"root@127.0.0.1:{port}")

        assert f"root@127.0.0.1:{port} accepts the connection, then falls silent" == refused(done, 3)

    def test_wrong_key(self, rented: Rented, here: RunHere) -> None:
        """
        A key that the box does not know.
        """
        key = make_key(rented.folder / "other")
        line = rented.line.replace(str(rented.sshd.key), str(key))

        done = here(rented.client).run("up", "fits", "--on", line)

        assert f"{getpass.getuser()}@127.0.0.1:{rented.sshd.port} accepts none of our keys: {key}" == refused(
            done, 3
        )
        assert "authorized_keys" in done.err

    def test_no_shell(self, rent: Rent, here: RunHere) -> None:
        """
        An account that runs no commands is shown with what it said.
        """
        rented = rent(login_shell="echo This account is currently not available; exit 1;")

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert "This account is currently not available" in refused(done, 3)

    @pytest.mark.parametrize("on", ["box", "line"])
    def test_changed_host_key(self, rented: Rented, here: RunHere, on: str) -> None:
        """
        Another machine at a known address: both fingerprints, and the one command after which it goes on.
        """
        name = "box" if on == "box" else rented.line
        run = here(rented.client).run
        assert 0 == run("status", "--on", name).status
        old = _fingerprint(rented.sshd.host_key)
        rented.sshd.stop()
        rented.sshd.host_key.unlink()
        rented.sshd.host_key.with_suffix(".pub").unlink()
        make_key(rented.sshd.host_key)
        rented.sshd.start()

        changed = run("status", "--on", name)
        command = re.search(r"mtpdeploy (hosts forget .*)", changed.err)
        assert command is not None, changed.err
        mended = run(*command[1].split())
        again = run("status", "--on", name)

        assert "shows another host key than before" in refused(changed, 3)
        assert f"known  ssh-ed25519 {old}" in changed.err
        assert f"shown  ssh-ed25519 {_fingerprint(rented.sshd.host_key)}" in changed.err
        assert 0 == mended.status, mended.err
        assert 0 == again.status, again.err

    def test_strict(self, rented: Rented, here: RunHere) -> None:
        """
        With `--strict` a host never seen before is not trusted.
        """
        done = here(rented.client).run("up", "fits", "--on", "box", "--strict")

        assert "was never seen before" in refused(done, 3)
        assert untouched(rented)


class TestTheBox:
    """
    The box lacks something: exit status 4.
    """

    @pytest.mark.parametrize(
        ("server", "words", "error"),
        [
            (
                {"model_path": "/nowhere/model"},
                (),
                "the model is not on `box`: no folder /nowhere/model",
            ),
            ({}, ("--gpu", "7"), "`box` has no GPU 7"),
        ],
        ids=["no model", "no such GPU"],
    )
    def test_asked_for_what_is_not_there(
        self, rented: Rented, here: RunHere, server: dict[str, Any], words: tuple[str, ...], error: str
    ) -> None:
        """
        Told before anything is written on the box.
        """
        rented.write_hosts(**server)

        done = here(rented.client).run("up", "fits", "--on", "box", *words)

        assert error == refused(done, 4)
        assert untouched(rented)

    def test_no_sglang(self, rented: Rented, here: RunHere) -> None:
        """
        A Python without sglang is named.
        """
        rented.write_hosts(host='python = "/usr/bin/python3"')

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert "sglang is not installed for the Python configured for `box`: /usr/bin/python3" == (
            refused(done, 4)
        )
        assert untouched(rented)

    def test_no_python(self, rented: Rented, here: RunHere) -> None:
        """
        A Python that is not there is named.
        """
        rented.write_hosts(host='python = "/nowhere/python"')

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert "/nowhere/python" in refused(done, 4)
        assert untouched(rented)

    def test_work_dir_that_cannot_be_written(self, rented: Rented, here: RunHere) -> None:
        """
        A work directory below something that is no folder.
        """
        rented.write_hosts(host='work_dir = "/dev/null/work"')

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert refused(done, 4).startswith("the work directory on `box` cannot be written: ")
        assert "work_dir" in done.err

    def test_full_disk(self, rented: Rented, here: RunHere, small_disk: Path) -> None:
        """
        A disk without room for a log is told with what is free on it.
        """
        rented.write_hosts(host=f'work_dir = "{small_disk}/work"')

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert re.fullmatch(r"the disk of `box` is full: \d\.\d\d GiB free at \S+", refused(done, 4))
        assert none_left(rented.home)

    def test_unknown_flag_for_the_version(self, rented: Rented, here: RunHere) -> None:
        """
        A flag that the version on the box does not know is refused before the launch.
        """
        done = here(rented.client).run("up", "fits", "--on", "box", "--set", "max_runing_requests=3")

        assert "max_runing_requests" in refused(done, 2)
        assert untouched(rented)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """
    A disk of 1 MB: a tmpfs where one may be mounted, else a quota that stands for it.
    """
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _fingerprint(key: Path) -> str:
    told = subprocess.run(
        ["ssh-keygen", "-l", "-f", f"{key}.pub"], check=True, capture_output=True, text=True
    )
    return told.stdout.split()[1]
