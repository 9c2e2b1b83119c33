import os
import re
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory.edit import add_host
from mtpdeploy.remote.address import parse_address
from tests.inventory.conftest import HOST, SERVER

LINE = "ssh -p 19248 root@203.0.113.20"
TEXT = """# my hosts
[hosts.a]   # the first
address = "x"  # where it is
quirks = [ # several
  "no-sftp",
]
# it is slow

# ── Servers ──
[servers.s]
model_path = "/m"
"""


def test_puts_the_host_behind_the_last_one(tmp_path: Path) -> None:
    """
    The new table stands with the others, an empty line around it; every other byte is as it was.
    """
    path = tmp_path / "hosts.toml"
    path.write_text(TEXT)
    add_host(path, "b.c", LINE, read_address=parse_address)
    new = '\n[hosts."b.c"]\nssh = "ssh -p 19248 root@203.0.113.20"\n'

    assert TEXT.replace("# it is slow\n", "# it is slow\n" + new) == path.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '[hosts.n]\nssh = "x"\n'),
        ("# only a comment", '# only a comment\n\n[hosts.n]\nssh = "x"\n'),
        ("[servers.s]\nport = 1", '[servers.s]\nport = 1\n\n[hosts.n]\nssh = "x"\n'),
        (
            '[hosts.a]\naddress = "x"\n[servers.s]\n',
            '[hosts.a]\naddress = "x"\n\n[hosts.n]\nssh = "x"\n\n[servers.s]\n',
        ),
        (
            '[hosts.a]\naddress = "x"\n# of s\n[servers.s]\n',
            '[hosts.a]\naddress = "x"\n\n[hosts.n]\nssh = "x"\n\n# of s\n[servers.s]\n',
        ),
        (
            'hosts.a.address = "x"\nservers.s.port = 1\n',
            'hosts.a.address = "x"\nservers.s.port = 1\n\n[hosts.n]\nssh = "x"\n',
        ),
        (
            '[hosts]\na.address = "x"\n[servers.s]\n',
            '[hosts]\na.address = "x"\n\n[hosts.n]\nssh = "x"\n\n[servers.s]\n',
        ),
        (
            '[hosts.a]\r\naddress = "x"\r\n',
            '[hosts.a]\r\naddress = "x"\r\n\r\n[hosts.n]\r\nssh = "x"\r\n',
        ),
        ("\ufeff# marked\n", '\ufeff# marked\n\n[hosts.n]\nssh = "x"\n'),
    ],
)
def test_finds_a_place_in_any_file(text: str, expected: str, tmp_path: Path) -> None:
    """
    Empty, without hosts, without a last newline, with dotted keys, from Windows, with a mark.
    """
    path = tmp_path / "hosts.toml"
    path.write_bytes(text.encode())
    add_host(path, "n", "x")

    assert expected == path.read_bytes().decode()


def test_makes_the_file_and_its_folder(tmp_path: Path) -> None:
    """
    The first host of a user who has no configuration yet.
    """
    path = tmp_path / "config" / "mtpdeploy" / "hosts.toml"
    add_host(path, "rented", {"address": "203.0.113.20", "port": 19248, "env": {"A": 'b"\n'}})

    assert {"hosts": {"rented": {"address": "203.0.113.20", "port": 19248, "env": {"A": 'b"\n'}}}} == (
        tomllib.loads(path.read_text())
    )
    assert 0o044 & ~_umask() == stat.S_IMODE(path.stat().st_mode) & 0o044


def test_keeps_mode_and_link(tmp_path: Path) -> None:
    """
    A file that others may not read stays so; a link into a folder of dot-files stays a link.
    """
    real = tmp_path / "dotfiles.toml"
    real.write_text(HOST)
    real.chmod(0o600)
    link = tmp_path / "hosts.toml"
    link.symlink_to(real)
    add_host(link, "n", LINE)

    assert link.is_symlink()
    assert 0o600 == stat.S_IMODE(real.stat().st_mode)
    assert "[hosts.n]" in real.read_text()
    assert ["dotfiles.toml", "hosts.toml"] == sorted(entry.name for entry in tmp_path.iterdir())


def test_refuses_a_name_that_is_taken(tmp_path: Path) -> None:
    """
    A host is not replaced by accident, and the file is not touched.
    """
    path = tmp_path / "hosts.toml"
    path.write_text(HOST)
    with pytest.raises(ConfigError) as caught:
        add_host(path, "h", LINE)

    assert f"`{path}`, line 1: there is a host `h` already" == caught.value.message
    assert "give `--force` to replace it, or another name" == caught.value.hint
    assert HOST == path.read_text()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_replaces_when_forced(newline: str, tmp_path: Path) -> None:
    """
    `--force` gives the host its new keys; a key that stays keeps its place and comment, and so do the lines
    of others.
    """
    path = tmp_path / "hosts.toml"
    text = TEXT.replace("[hosts.a]", "[hosts.other]\naddress = 'o'\n\n[hosts.a]")
    path.write_bytes(text.replace("\n", newline).encode())
    add_host(path, "a", {"address": "y", "port": 22, "user": "root"}, force=True)
    expected = text.replace('address = "x" ', 'address = "y" ').replace(
        'quirks = [ # several\n  "no-sftp",\n]\n', 'port = 22\nuser = "root"\n'
    )

    assert expected.replace("\n", newline) == path.read_bytes().decode()


def test_replaces_an_entry_with_a_table_of_variables(tmp_path: Path) -> None:
    """
    What the old entry had and the new one has not is gone; a table below it, too.
    """
    path = tmp_path / "hosts.toml"
    path.write_text(HOST + '[hosts.h.env]\nA = "1"\n\n' + SERVER)
    add_host(path, "h", LINE, force=True)

    assert {"h": {"ssh": LINE}} == tomllib.loads(path.read_text())["hosts"]
    assert path.read_text().endswith("\n" + SERVER)


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        ("a b", LINE, "`hosts add`: `a b` is no name for a host"),
        ("demo", LINE, "`hosts add`: the host `demo` is built in"),
        ("n", {"port": 22}, "`hosts add`: nothing says where `n` is"),
        (
            "n",
            {"address": "x", "port": 0},
            "`hosts add`: `port` in `[hosts.n]` is 0, and wants a whole number from 1 to 65535",
        ),
        ("n", {"adress": "x"}, "`hosts add`: `[hosts.n]` has no key `adress`"),
        ("n", "ssh -p 0 root@x", "a port lies between 1 and 65535: 0"),
        ("n", "", '`hosts add`: `ssh` in `[hosts.n]` is "", and wants the line to paste as one text'),
    ],
)
def test_checks_the_host_before_it_touches_the_file(
    name: str, entry: str | dict[str, Any], message: str, tmp_path: Path
) -> None:
    """
    What hosts.toml could not hold is refused as the command's error, and no file appears.
    """
    with pytest.raises(ConfigError) as caught:
        add_host(tmp_path / "hosts.toml", name, entry, read_address=parse_address)

    assert message == caught.value.message
    assert [] == list(tmp_path.iterdir())


def test_does_not_add_to_a_wrong_file(tmp_path: Path) -> None:
    """
    A file with an error in it is told as such and stays as it is.
    """
    path = tmp_path / "hosts.toml"
    path.write_text("[hosts.a]\nadress = 'x'\n")
    with pytest.raises(ConfigError) as caught:
        add_host(path, "n", LINE)

    assert f"`{path}`, line 2: `[hosts.a]` has no key `adress`" == caught.value.message
    assert "[hosts.a]\nadress = 'x'\n" == path.read_text()


def test_says_what_to_write_where_it_cannot(tmp_path: Path) -> None:
    """
    Hosts in braces cannot be added to: the table to write is shown, and the file stays.
    """
    path = tmp_path / "hosts.toml"
    path.write_text('hosts = { a = { address = "x" } }\n')
    with pytest.raises(ConfigError) as caught:
        add_host(path, "n", LINE)

    assert f"`{path}` is written in a way that `hosts add` cannot keep" == caught.value.message
    assert (
        "write this into it by hand (what stands in braces is complete):\n"
        f'[hosts.n]\nssh = "{LINE}"' == caught.value.hint
    )
    assert 'hosts = { a = { address = "x" } }\n' == path.read_text()


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """
    The system's own word says why, and nothing half-written is left.
    """
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        add_host(tmp_path / "file" / "hosts.toml", "n", LINE)

    assert re.fullmatch(
        rf"`{re.escape(str(tmp_path))}/file/hosts.toml` cannot be written: (File exists|Not a directory)",
        caught.value.message,
    )
    assert [tmp_path / "file"] == list(tmp_path.iterdir())


@pytest.mark.parametrize("linked", [False, True], ids=["itself", "through a link"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "loop"])
def test_only_a_regular_file_is_replaced(kind: str, *, linked: bool, tmp_path: Path) -> None:
    """
    A pipe, a socket, a folder or a link to itself stays what it is; a device is of the same kind.
    """
    target = tmp_path / "target"
    with socket.socket(socket.AF_UNIX) as listener:
        match kind:
            case "pipe":
                os.mkfifo(target)
            case "socket":
                listener.bind(str(target))
            case "folder":
                target.mkdir()
            case _:
                target.symlink_to(target)
    path = tmp_path / "hosts.toml" if linked else target
    if linked:
        path.symlink_to(target)
    before = target.lstat()
    with pytest.raises(ConfigError) as caught:
        add_host(path, "n", LINE)

    assert f"`{target}` is no regular file, and only those are written" == caught.value.message
    assert caught.value.hint
    assert (before.st_ino, before.st_mode) == (target.lstat().st_ino, target.lstat().st_mode)


def test_a_write_protected_file_stays(tmp_path: Path) -> None:
    """
    The file's own mode counts, not only that of its folder; for root, too.
    """
    path = tmp_path / "hosts.toml"
    path.write_text(HOST)
    path.chmod(0o444)
    with pytest.raises(ConfigError) as caught:
        add_host(path, "n", LINE)

    assert f"`{path}` is write-protected" == caught.value.message
    assert f"chmod u+w {path}" in caught.value.hint
    assert HOST == path.read_text()


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    """
    Hosts added by several processes at the same time are all there in the end.
    """
    path = tmp_path / "hosts.toml"
    program = (
        "import sys; from pathlib import Path; from mtpdeploy.inventory.edit import add_host\n"
        "for i in range(5): add_host(Path(sys.argv[1]), f'{sys.argv[2]}{i}', 'ssh root@x')"
    )
    root = Path(__file__).parents[2]
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(path), who], cwd=root) for who in ("a", "b", "c")
    ]

    assert [0, 0, 0] == [child.wait(timeout=60) for child in children]
    assert {f"{who}{i}" for who in "abc" for i in range(5)} == set(tomllib.loads(path.read_text())["hosts"])


comments = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=12).map(lambda text: f"# {text}")
blanks = st.sampled_from(["", "", "  ", "\t"])
keys = st.sampled_from(['user = "root"', "port = 22", "quirks = [ # c\n]", "env = {}"])


@st.composite
def files(draw: st.DrawFn) -> str:
    """
    A hosts.toml with comments and empty lines wherever they may stand.
    """
    parts: list[str] = draw(st.lists(st.one_of(comments, blanks), max_size=3))
    tables = draw(
        st.permutations(["[hosts.a]", "[hosts.b.env]", "[servers.s]", "[defaults.host]", "[hosts.c]"])
    )
    for table in tables[: draw(st.integers(0, 5))]:
        parts.append(table + " " + draw(comments))
        if not table.endswith(("env]", "s]")):
            parts += [key + " " + draw(comments) for key in draw(st.lists(keys, unique=True, max_size=3))]
        if table == "[hosts.b.env]":
            parts.append("A = '''\n# [hosts.x]\n'''")
        parts += draw(st.lists(st.one_of(comments, blanks), max_size=3))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return newline.join(parts).replace("\r\n", "\n").replace("\n", newline) + draw(
        st.sampled_from(["", newline])
    )


@given(
    text=files(),
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{1,8}", fullmatch=True),
    host=st.text("a-z ", max_size=3),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
def test_adding_keeps_every_byte(text: str, name: str, host: str, tmp_path: Path) -> None:
    """
    Whatever the file looks like, taking the new lines away again gives the old file, and it says the same as
    before plus the host.
    """
    path = tmp_path / "hosts.toml"
    path.write_bytes(text.encode())
    entry = {"ssh": f"ssh root@x{host}", "python": "/p\\q", "env": {"A": host}}
    add_host(path, name, entry, force=True)
    before, after = tomllib.loads(text), tomllib.loads(path.read_bytes().decode())
    hosts = before.get("hosts", {})

    assert {**before, "hosts": {**hosts, name: entry}} == after
    if name not in hosts:
        assert _is_within(text, path.read_bytes().decode())


def _is_within(old: str, new: str) -> bool:
    """
    Whether the new text is the old one with one piece put in, and perhaps a last newline.
    """
    newline = "\r\n" if "\r\n" in old else "\n"
    return any(
        new.startswith(text[:cut]) and new.endswith(text[cut:])
        for text in (old, old + newline)
        for cut in range(len(text) + 1)
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
