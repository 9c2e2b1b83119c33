"""
On which line a key of a TOML text stands. tomllib tells values only, and an error has to name its line.
"""

import re
from collections.abc import Iterator

KeyPath = tuple[str | int, ...]
"""From the top of the document to a value: names, and the index where a table stands in an array."""

TOKEN = re.compile(
    r"""
      (?P<comment> \#[^\n]* )
    | (?P<long>    \"\"\"(?:\\.|[^\\])*?\"{3,5} | '''.*?'{3,5} )
    | (?P<quoted>  "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
    | (?P<open>    [\[{] )
    | (?P<close>   [\]}] )
    | (?P<newline> \n )
    | (?P<mark>    [=.,] )
    | (?P<bare>    [^\s\#"'\[\]{}=.,]+ )
    | (?P<space>   [^\S\n]+ )
    | (?P<stray>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
Token = tuple[str, str, int]


def key_lines(text: str) -> Iterator[tuple[KeyPath, int, int]]:
    """
    Every table header and every key outside inline tables with its first and last line (from 1), in order.

    Keys inside an inline table or an array are not told: their line is that of the key they belong to.
    A key given twice comes twice, so that a text that tomllib refuses can be searched for its duplicate.
    """
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for statement in _statements(text):
        kind, _, line = statement[0]
        last = statement[-1][2] + statement[-1][1].count("\n")
        if kind == "open":
            names = _names(statement)
            is_element = len(statement) > 1 and statement[1][0] == "open"
            table = _placed(names, counts, is_element=is_element)
            yield table, line, last
        else:
            yield table + _names(statement), line, last


def _statements(text: str) -> Iterator[list[Token]]:
    """
    The tokens of each header or key with its value, without space and comments.
    """
    depth = 0
    statement: list[Token] = []
    for token in _tokens(text):
        kind = token[0]
        depth += (kind == "open") - (kind == "close")
        if kind == "newline" and depth <= 0:
            if statement:
                yield statement
            statement, depth = [], 0
        elif kind not in ("newline", "comment", "space"):
            statement.append(token)
    if statement:
        yield statement


def _tokens(text: str) -> Iterator[Token]:
    line = 1
    for match in TOKEN.finditer(text):
        kind, words = str(match.lastgroup), match.group()
        yield kind, words, line
        line += words.count("\n")


def _names(statement: list[Token]) -> tuple[str, ...]:
    """
    The dotted key of a header or of a key with its value.
    """
    names = []
    for kind, words, _ in statement:
        if words == "=" or kind == "close":
            break
        if kind == "quoted":
            names.append(_unquoted(words))
        elif kind == "bare":
            names.append(words)
    return tuple(names)


def _unquoted(words: str) -> str:
    if words[0] == "'" or "\\" not in words:
        return words[1:-1]
    escapes = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}

    def meaning(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if code[0] in "uU" else escapes.get(code, code)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", meaning, words[1:-1])


def _placed(names: tuple[str, ...], counts: dict[KeyPath, int], *, is_element: bool) -> KeyPath:
    """
    A header's path with the index of the newest element behind every array of tables on the way.
    """
    path: KeyPath = ()
    for name in names[:-1]:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path])
    path += names[-1:]
    if is_element:
        counts[path] = counts.get(path, -1) + 1
    return (*path, counts[path]) if path in counts else path
