import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpdeploy.inventory.key_lines import KeyPath, key_lines

TEXT = '''# a comment with [brackets] and key = "value"
[hosts.a] # behind a header
env = { A = "#", B = '[x]' }
list = [ # a comment ]
  "]", # another
  { x = 1 },
]
long = """
[not.a.table]
key = 1
\\""" still """
quoted."dotted.key" = 1

[["l".r]]
x = 1
[l.r.sub]
y = 2
[[l.r]]
x = 3
'''


def test_tells_every_header_and_key_with_its_first_and_last_line() -> None:
    """
    Strings, comments, lists over several lines and quoted names do not lead the count astray.
    """
    expected: list[tuple[KeyPath, int, int]] = [
        (("hosts", "a"), 2, 2),
        (("hosts", "a", "env"), 3, 3),
        (("hosts", "a", "list"), 4, 7),
        (("hosts", "a", "long"), 8, 11),
        (("hosts", "a", "quoted", "dotted.key"), 12, 12),
        (("l", "r", 0), 14, 14),
        (("l", "r", 0, "x"), 15, 15),
        (("l", "r", 0, "sub"), 16, 16),
        (("l", "r", 0, "sub", "y"), 17, 17),
        (("l", "r", 1), 18, 18),
        (("l", "r", 1, "x"), 19, 19),
    ]

    assert expected == list(key_lines(TEXT))


names = st.text("ab.\"'# =[]\\\té", min_size=1, max_size=6)
values = st.sampled_from(
    [
        "1",
        '"a # b"',
        "'[x]'",
        "[1, 2]",
        "[\n  1, # ]\n  2\n]",
        '{ a = "}" }',
        '"""a\n[b]\n"""',
        "'''\n''x'''",
        "1.5e3",
    ]
)


def quoted(name: str) -> str:
    """
    A key in double quotes.
    """
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{escaped}"'


@given(st.dictionaries(names, st.dictionaries(names, values, max_size=4), max_size=4), st.booleans())
def test_agrees_with_tomllib_on_every_key(tables: dict[str, dict[str, str]], comments: bool) -> None:
    """
    Every key that tomllib finds outside inline tables has a line, and the value stands there.
    """
    text = ""
    for table, keys in tables.items():
        text += f"# [x]\n[{quoted(table)}]\n" if comments else f"[{quoted(table)}]\n"
        text += "".join(f"{quoted(key)} = {value} # = 1\n" for key, value in keys.items())
    told = {path: (first, last) for path, first, last in key_lines(text)}

    assert set(_paths(tomllib.loads(text))) == set(told)
    for path, (first, last) in told.items():
        lines = "\n".join(text.split("\n")[first - 1 : last])
        assert _at(tomllib.loads(text), path) == _at(tomllib.loads(lines), (path[-1],)) or len(path) == 1


def _paths(tables: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for table, keys in tables.items():
        yield (table,)
        yield from ((table, key) for key in keys)


def _at(tables: Any, path: KeyPath) -> Any:
    for part in path:
        tables = tables[part]
    return tables


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "[a", 'x = "', "]]]]", "= = ="])
def test_ends_on_any_text(text: str) -> None:
    """
    A text that is no TOML ends the search as well; what it tells then does not matter.
    """
    assert len(list(key_lines(text))) <= len(text)
