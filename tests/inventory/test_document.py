import os
from pathlib import Path

import pytest

from mtpdeploy.core.units import MIB
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import load
from mtpdeploy.inventory.document import LARGEST, read
from mtpdeploy.inventory.load import shown_path
from tests.inventory.conftest import HOST, SERVER, Load


@pytest.mark.parametrize("text", [b"", b"\n", b"# nothing\n", b"\xef\xbb\xbf", b"\r\n\r\n"])
def test_nothing_is_a_whole_inventory(text: bytes, load_text: Load) -> None:
    """
    An empty file, comments alone or a mark alone are no error: there is only nothing configured.
    """
    inventory = load_text(text)

    assert ({}, {}) == (inventory.hosts, inventory.servers)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_windows_files_count_their_lines_alike(newline: str, mark: bytes, load_text: Load) -> None:
    """
    A byte order mark and CRLF change neither values nor lines.
    """
    inventory = load_text(mark + (SERVER + HOST).replace("\n", newline).encode())
    claim = inventory.hosts["h"]["reach"][0]

    assert (("address", "203.0.113.20"), 4) == (claim.value, claim.origin.line)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[hosts.a]\n# \xff\n", "`hosts.toml`, line 2: not UTF-8 (byte ff at offset 12)"),
        (b"\xff\xfe[\x00h\x00", "`hosts.toml`, line 1: not UTF-8 (byte ff at offset 0)"),
        (b"# \xe2\x82", "`hosts.toml`, line 1: not UTF-8 (byte e2 82 at offset 2)"),
    ],
)
def test_names_the_byte_that_is_not_utf8(content: bytes, message: str, load_text: Load) -> None:
    """
    Latin-1, UTF-16 and a cut character are named with line and byte.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(content)

    assert message == caught.value.message
    assert (
        "save the file as UTF-8 (Windows editors and PowerShell's `>` may write UTF-16)" == caught.value.hint
    )


@pytest.mark.parametrize("content", ["x = " + "[" * 20_000, "x = " + "{a=" * 20_000])
def test_refuses_endless_nesting(content: str, load_text: Load) -> None:
    """
    Brackets beyond Python's recursion limit are an error in the file, not a traceback.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(content)

    assert "`hosts.toml`: brackets are nested too deeply to be read" == caught.value.message


def test_finds_the_line_of_a_number_without_end(load_text: Load) -> None:
    """
    The one error for which tomllib tells no place is given one.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(f"[hosts.a]\n\nport = {'9' * 5000}\n")

    assert caught.value.message.startswith(
        "`hosts.toml`, line 3, column 8: not TOML: a number has too many digits, read: `port = 999"
    )


def test_reads_a_huge_file(load_text: Load) -> None:
    """
    Twenty thousand hosts load, and the last one's line is right.
    """
    inventory = load_text(
        "".join(f'[hosts.h{i}]\naddress = "h{i}.example"\nport = 22\n' for i in range(20_000))
    )
    claim = inventory.hosts["h19999"]["port"][0]

    assert 60_000 == claim.origin.line


def test_refuses_what_is_too_large_to_be_one(tmp_path: Path) -> None:
    """
    A wrong path to a log or a device cannot fill memory.
    """
    path = tmp_path / "hosts.toml"
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)

    with pytest.raises(ConfigError) as caught:
        read(path, "hosts.toml")

    assert f"`hosts.toml` is larger than {LARGEST // MIB} MiB and is no hosts.toml" == caught.value.message


def test_a_named_file_has_to_be_there(tmp_path: Path) -> None:
    """
    `--config` with a wrong path is an error; without it a hosts.toml may be missing.
    """
    with pytest.raises(ConfigError) as caught:
        load("no.toml", environ={}, directory=tmp_path, user_directory=tmp_path / "user")

    assert "there is no file `no.toml`" == caught.value.message
    assert "check `--config` or MTPDEPLOY_CONFIG, or leave both out to read ./hosts.toml" == caught.value.hint
    assert {} == load(environ={}, directory=tmp_path, user_directory=tmp_path / "user").hosts


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """
    The system's own word says why a path cannot be read.
    """
    (tmp_path / "hosts.toml").mkdir()

    with pytest.raises(ConfigError) as caught:
        load(environ={}, directory=tmp_path, user_directory=tmp_path / "user")

    assert "`hosts.toml` cannot be read: Is a directory" == caught.value.message
    assert "give the path of a file that you may read (`ls -l` shows whose it is)" == caught.value.hint


def test_a_link_to_nowhere_is_told(tmp_path: Path) -> None:
    """
    A hosts.toml that is a broken link is not taken for an absent one.
    """
    (tmp_path / "hosts.toml").symlink_to(tmp_path / "gone")

    with pytest.raises(ConfigError) as caught:
        load(environ={}, directory=tmp_path, user_directory=tmp_path / "user")

    assert "there is no file `hosts.toml`" == caught.value.message


def test_a_file_of_somebody_else_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A file without permission to read is named with the system's word. Root may read everything, so there it
    is tried as a user without rights.
    """
    path = tmp_path / "hosts.toml"
    path.write_text(HOST)
    path.chmod(0)
    tmp_path.chmod(0o711)
    monkeypatch.chdir(tmp_path)
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        with pytest.raises(ConfigError) as caught:
            read(Path("hosts.toml"), "hosts.toml")
    finally:
        os.seteuid(user)

    assert "`hosts.toml` cannot be read: Permission denied" == caught.value.message


@pytest.mark.parametrize(
    ("path", "directory", "shown"),
    [("/a/b.toml", "/a", "b.toml"), ("/a/b.toml", "/", "/a/b.toml"), ("/a/b.toml", "/c", "/a/b.toml")],
)
def test_a_path_as_errors_name_it(path: str, directory: str, shown: str) -> None:
    """
    Short within the working directory; below the root it stays whole.
    """
    assert shown == shown_path(Path(path), Path(directory))
