"""
What a report leaves out before anybody else sees it: secrets always; names and addresses on request.

Equal things get equal placeholders (`address-1`, `host-1`), so that lines stay comparable. What might be an
address is taken for one: a version of four numbers is left out too, unless it begins with 0.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TypeVar, cast

from msgspec import Struct, structs

from mtpdeploy.core.machine import Host
from mtpdeploy.deploy.places import (
    AWS_SECRET,
    COMMON_NAMES,
    COMMON_USERS,
    DASHED,
    GPU,
    HOME,
    HOST_NAME,
    IN_HOME,
    IPV4,
    IPV6,
    LOGIN,
    PUBLIC,
    URL_HOST,
    USUAL,
)
from mtpdeploy.inventory.secrecy import LOGIN_PASSWORD, SECRET_FLAGS, is_secret, masked

T = TypeVar("T")

LEFT_OUT = "…"
"""What stands in place of a secret."""

ASSIGNED = re.compile(
    r"(?i)(?<![a-z0-9_-])((?:[a-z0-9_-]*[_-])?"
    r"(?:token|api[_-]?key|secret|(?:secret|access|private|auth)[_-]key|password|passwd|passphrase|credentials?)"
    r"(?:\\?[\"'])?[ \t]*[=:][ \t]*)"
    r"((?:\\\"[^\"\\]*\\\"|\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;)\]}\"']|[\"'][^\"']*)+)"
)
"""A variable or a field whose name is one of a secret, and its value, as logs and scripts write them."""

FLAGGED = re.compile(
    r"(?i)(--(?:[a-z0-9]+[_-])*(?:api[_-]key|token|password)(?:=|[ \t]+))(\"[^\"]*\"|'[^']*'|[^\s\"']+)"
)
"""A flag whose value is a secret: `--api-key VALUE`."""

BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}")
"""A token in an HTTP header (RFC 6750, section 2.1; RFC 7617)."""

JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*)?")
"""A signed token (RFC 7519): JSON that begins with `{"`, in base64."""

EMPTY = re.compile(r"None|null|True|False|true|false|\"\"|''")
"""Values that are none."""

COUNTED = re.compile(r"[0-9.]{1,12}|\"<[^\"]*>\"|'<[^']*>'|<[^\s<>]*>")
"""What is no secret but of a password: SGLang counts tokens, and names special ones."""

PASSED = re.compile(r"(?i)pass|secret|credential")

KINDS = ("host", "address", "user", "path", "card")
"""The words of placeholders."""

PLACEHOLDER = re.compile(rf"(?:{'|'.join(KINDS)})-[0-9]+(?![0-9])")
"""What this makes, and so leaves as it is."""

PASSES = 5
"""How often a line is gone over at most: what is cut may have been hidden behind what stood beside it."""

Rule = Callable[[re.Match[str]], str | None]
"""What stands in place of a match; None where it stays."""


class Known(Struct, frozen=True):
    """
    A name that is to be left out wherever it stands: `kind` is the placeholder's word.
    """

    kind: str
    text: str


class Redactor:
    """
    Takes secrets out of texts and values, and with `known` names and all addresses too.

    Texts that went through it come out of it as they are.
    """

    def __init__(self, known: Iterable[Known] | None = None) -> None:
        self.names = known is not None
        given = sorted({k for k in known or () if _tells(k)}, key=lambda k: (-len(k.text), k.text, k.kind))
        self._given = {_same(k.text): k.kind for k in reversed(given)}
        self._numbers: dict[str, int] = {}
        self._placeholders: dict[tuple[str, str], str] = {}
        for one in sorted(given, key=lambda k: k.text):
            self._placeholder(self._given[_same(one.text)], one.text)
        names = "|".join(_pattern(one.text) for one in given) or "(?!)"
        glued = "|".join(re.escape(one.text) for one in given if not _is_name(one.text)) or "(?!)"
        self._glued = re.compile(glued, re.IGNORECASE)
        self._known = re.compile(names, re.IGNORECASE)

    def text(self, text: str) -> str:
        """
        A text without what is to be left out.
        """
        return "\n".join(map(self._line, text.split("\n")))

    def value(self, value: T, name: str = "") -> T:
        """
        A value of strings, lists, dictionaries and structs with all its texts so; enumerations stay.

        `name` is what it is called: the value of what is named like a secret is one.
        """
        return cast("T", self._any(value, name))

    def _any(self, value: object, name: str) -> object:
        redacted = value
        match value:
            case Enum():
                pass
            case str():
                hidden = name and value and (is_secret(name, "") or name in SECRET_FLAGS)
                redacted = LEFT_OUT if hidden else self.text(value)
            case Struct():
                fields = {field: self._any(getattr(value, field), field) for field in value.__struct_fields__}
                redacted = structs.replace(value, **fields)
            case dict():
                redacted = {self._any(key, ""): self._any(one, str(key)) for key, one in value.items()}
            case list() | tuple():
                redacted = type(value)(self._any(one, name) for one in value)
        return redacted

    def _line(self, line: str) -> str:
        for _ in range(PASSES):
            clean = self._without_secrets(line)
            clean = self._without_names(clean) if self.names else clean
            if clean == line:
                break
            line = clean
        return line

    def _without_secrets(self, text: str) -> str:
        text = masked(text)
        if "@" in text:
            text = LOGIN_PASSWORD.sub(lambda m: f"{m[0].partition(':')[0]}:{LEFT_OUT}@", text)
        for pattern in (ASSIGNED, FLAGGED):
            text = pattern.sub(_unvalued, text)
        text = AWS_SECRET.sub(LEFT_OUT, text)
        return JWT.sub(LEFT_OUT, BEARER.sub(rf"\1{LEFT_OUT}", text))

    def _without_names(self, text: str) -> str:
        """
        The text piece by piece: each rule works on what the ones before it left over.
        """
        pieces = [(text, False)]
        rules: list[tuple[re.Pattern[str], Rule]] = [
            (IN_HOME, self._in_home),
            (self._known, self._name),
            (URL_HOST, self._url_host),
            (LOGIN, self._login),
            (HOME, self._home),
            (DASHED, self._dashed),
            (HOST_NAME, lambda m: self._host(m[0])),
            (IPV6, self._ipv6),
            (IPV4, lambda m: self._placeholder("address", m[0])),
            (GPU, lambda m: self._placeholder("card", m[0])),
            (self._glued, lambda m: self._placeholder("address", m[0])),
        ]
        for pattern, replaced in rules:
            pieces = [part for piece in pieces for part in _parted(piece, pattern, replaced)]
        return "".join(part for part, _done in pieces)

    def _placeholder(self, kind: str, text: str) -> str:
        key = (kind, _same(text))
        if key not in self._placeholders:
            number = self._numbers.get(kind, 0) + 1
            while f"{kind}-{number}" in self._given:
                number += 1
            self._numbers[kind] = number
            self._placeholders[key] = f"{kind}-{number}"
        return self._placeholders[key]

    def _name(self, found: re.Match[str]) -> str:
        return self._placeholder(self._given[_same(found[0])], found[0])

    def _login(self, found: re.Match[str]) -> str | None:
        user, host = found[1], found[2].rstrip(".")
        if user.lower() not in COMMON_USERS and not PLACEHOLDER.fullmatch(user):
            user = self._placeholder("user", user)
        named = re.search(r"[A-Za-z]", host) and not PLACEHOLDER.fullmatch(host)
        if named and host.lower() not in COMMON_NAMES:
            return f"{user}@{self._placeholder('host', host)}{found[2][len(host) :]}"
        # An address is left to its own rule.
        return None if user == found[1] else f"{user}@{found[2]}"

    def _in_home(self, found: re.Match[str]) -> str | None:
        home, rest = found[1], found[2].rstrip(".")
        if USUAL.match(rest) or PLACEHOLDER.fullmatch(rest) or not rest:
            return None
        above, _, user = home.rpartition("/")
        if above and user.lower() not in COMMON_USERS and not PLACEHOLDER.fullmatch(user):
            home = f"{above}/{self._placeholder('user', user)}"
        return f"{home}/{self._placeholder('path', found[0])}{found[2][len(rest) :]}"

    def _url_host(self, found: re.Match[str]) -> str | None:
        new = self._host(found[1])
        return None if new is None else found[0][: -len(found[1])] + new

    def _host(self, name: str) -> str | None:
        """
        The placeholder of a host's name, unless it tells nothing; an address is left to its own rule.
        """
        known = PUBLIC.fullmatch(name) or name.lower() in COMMON_NAMES or PLACEHOLDER.fullmatch(name)
        return None if known or re.fullmatch(r"[0-9.]+", name) else self._placeholder("host", name)

    def _dashed(self, found: re.Match[str]) -> str | None:
        return None if PLACEHOLDER.match(found[0]) else self._placeholder("host", found[0])

    def _home(self, found: re.Match[str]) -> str | None:
        if found[2].lower() in COMMON_USERS or PLACEHOLDER.fullmatch(found[2]):
            return None
        return found[1] + self._placeholder("user", found[2])

    def _ipv6(self, found: re.Match[str]) -> str | None:
        text, after = found[0], found.string[found.end() : found.end() + 1]
        for begin, end in _spans(text):
            address = _address(text[begin:end])
            follows = text[end : end + 1] or after
            if address is None or follows.isalnum() or follows == "_":
                continue
            if _is_own(address):
                return None
            return text[:begin] + self._placeholder("address", str(address)) + text[end:]
        return None


def known_of(hosts: Iterable[Host], clients: Iterable[str]) -> Iterator[Known]:
    """
    What tells where a box is and who uses it: of each host its name, address, user, jump hosts and key
    files, and the people and machines of `clients` (`ada@laptop`).
    """
    for host in hosts:
        if host.simulated:
            continue
        yield from (Known("host", text) for text in (host.name, host.alias) if text)
        yield _machine(host.address)
        yield from _of_login(f"{host.user or ''}@")
        yield from _of_file(host.identity_file or "")
        for jump in (host.proxy_jump or "").split(","):
            yield from _of_login(re.sub(r"\A\w+://", "", jump.strip()))
        for forward in host.forwards:
            yield from (_machine(word) for word in forward.split(":") if not word.isdigit())
        for option in host.ssh_options:
            yield from _of_option(*option.partition("=")[::2])
    for client in clients:
        yield from _of_login(client)


def _of_login(text: str) -> Iterator[Known]:
    user, _, machine = text.rpartition("@")
    if user:
        yield Known("user", user)
    bare = machine.strip("[]") if machine.count(":") != 1 else machine.partition(":")[0]
    if bare:
        yield _machine(bare.partition("]")[0])


def _of_option(key: str, value: str) -> Iterator[Known]:
    """
    What an option of ssh tells: the files, users and machines that it names (ssh_config(5)).
    """
    match key.strip().lower():
        case "user":
            yield Known("user", value)
        case "hostname" | "hostkeyalias":
            yield _machine(value)
        case "proxyjump":
            for jump in value.split(","):
                yield from _of_login(jump.strip())
        case "proxycommand":
            for word in value.split():
                if re.fullmatch(r"[\w.@-]+\.[A-Za-z]{2,}", word):
                    yield from _of_login(word)
        case "identityfile" | "certificatefile" | "userknownhostsfile" | "controlpath" | "identityagent":
            yield from _of_file(value)


def _of_file(path: str) -> Iterator[Known]:
    """
    A file of keys by its path, and by its own name where that is not the usual one (ssh-keygen(1)).
    """
    name = path.rpartition("/")[2]
    if path:
        yield Known("path", path)
    if name and not re.match(r"id_(rsa|dsa|ecdsa|ed25519)|known_hosts|none", name):
        yield Known("path", name)


def _machine(text: str) -> Known:
    return Known("host" if _is_name(text) else "address", text)


def _is_name(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return True
    return False


def _tells(known: Known) -> bool:
    """
    Whether a name tells anything: not one that every machine has, nor a single letter, nor a port.
    """
    text = known.text.lower().strip()
    common = text in COMMON_NAMES or text.rpartition("/")[2] in COMMON_USERS
    if len(text) < 2 or text.isdigit() or common or not text.strip("/~."):
        return False
    return _is_name(text) or not _is_own(ipaddress.ip_address(text))


def _pattern(text: str) -> str:
    """
    Where a name stands: anywhere if it looks like nothing else, else as a word of its own.
    """
    if not _is_name(text):
        return rf"(?<![0-9]){re.escape(text)}(?![0-9])"
    if text.lower() in KINDS:
        return rf"(?<![A-Za-z0-9]){text}(?![A-Za-z0-9])(?!-[0-9])"
    special = len(text) >= 6 and re.search(r"[0-9./~-]", text)
    return re.escape(text) if special else rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])"


def _same(text: str) -> str:
    """
    What two writings of one name or address have in common.
    """
    if _is_name(text):
        return text.lower()
    return str(ipaddress.ip_address(text))


def _parted(piece: tuple[str, bool], pattern: re.Pattern[str], replaced: Rule) -> Iterator[tuple[str, bool]]:
    """
    A piece cut at what a rule replaces; what is done is cut no more.
    """
    text, done = piece
    if done:
        yield piece
        return
    begin = 0
    for found in pattern.finditer(text):
        new = replaced(found)
        if new is not None:
            yield text[begin : found.start()], False
            yield new, True
            begin = found.end()
    yield text[begin:], False


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """
    Where the parts of a text begin and end that lie between colons, the longest first.
    """
    ends = [m.start() for m in re.finditer(":", text)]
    begins = [0, *ends, *(end + 1 for end in ends)]
    stops = [len(text), *ends, *(end + 1 for end in ends)]
    spans = {(begin, stop) for begin in begins for stop in stops if text[begin:stop].count(":") >= 2}
    yield from sorted(spans, key=lambda span: (span[0] - span[1], span))


def _address(text: str) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(text)
    except ValueError:
        return None


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """
    Whether an address is of every machine and so tells nothing: loopback, or none at all.
    """
    inner = getattr(address, "ipv4_mapped", None) or address
    return inner.is_loopback or inner.is_unspecified


def _unvalued(found: re.Match[str]) -> str:
    value = found[2]
    if EMPTY.fullmatch(value) or (COUNTED.fullmatch(value) and not PASSED.search(found[1])):
        return found[0]
    quote = re.match(r"\\?[\"']", value)
    end = quote[0] if quote and value.endswith(quote[0]) else ""
    return f"{found[1]}{end}{LEFT_OUT}{end}"
