from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import load, resolve
from mtpdeploy.inventory.document import parse
from mtpdeploy.inventory.load import check
from mtpdeploy.remote.address import parse_address

TEXT = (Path(__file__).parents[2] / "hosts.toml").read_text()
PIECES = st.sampled_from(
    [
        "",
        "=",
        '"',
        "'",
        "[",
        "]",
        "{",
        "}",
        "\n",
        "#",
        ".",
        "\\",
        "\0",
        "é",
        "9" * 30,
        "nan",
        "-1",
        "true",
        '"""',
        "1979-05-27",
    ]
)


@given(
    place=st.integers(0, len(TEXT)),
    length=st.sampled_from([0, 1, 5, 40]),
    piece=st.one_of(PIECES, st.text(st.characters(exclude_categories=["Cs"]), max_size=4)),
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_loads_or_is_one_error(place: int, length: int, piece: str) -> None:
    """
    Whatever is put in the place of some characters of the example, there is a result or one ConfigError
    whose message is one printable line, and a hint; never anything else.
    """
    text = TEXT[:place] + piece + TEXT[place + length :]
    error = refusal(lambda: check(parse(text, Path("hosts.toml"), "hosts.toml")))

    assert error is None or (error.message.isprintable() and error.hint)
    assert error is None or error.message.startswith("`hosts.toml`")


@given(content=st.binary(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
def test_any_bytes_load_or_are_one_error(content: bytes, tmp_path: Path) -> None:
    """
    Bytes that are no TOML at all are told like any other error; and none of them makes a server.
    """
    (tmp_path / "hosts.toml").write_bytes(content)

    def settle() -> None:
        inventory = load(environ={}, directory=tmp_path, user_directory=tmp_path / "user")
        resolve(inventory, read_address=parse_address)

    error = refusal(settle)

    assert error is not None
    assert error.message.isprintable()
    assert error.hint


def refusal(action: Callable[[], object]) -> ConfigError | None:
    """
    The ConfigError that an action ends with, if it does.
    """
    try:
        action()
    except ConfigError as error:
        return error
    return None
