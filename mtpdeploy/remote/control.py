"""
How scripts travel to a shell on the box, and how their answers are cut out of what comes back.

The command given to sshd is one line without quotes inside quotes, backslash, newline or "!", so that
bash, zsh, fish, tcsh, dash and busybox all hand it to `sh` unchanged. A request is a line `mark length`
and that many bytes of script. The script is read whole before any of it runs, so that a line cut in the
middle runs nothing; it reaches its shell through a pipe and `eval`, so that neither the kernel's limit on
arguments (128 KiB each, `MAX_ARG_STRLEN`) nor a full /tmp stops it.
"""

import re
import secrets

from mtpdeploy.remote.box import Result

_RUNNER = (
    "s=$(cat); exec </dev/null; "
    '[ "$BASH_VERSION" ] && [ -z "$TMPDIR" ] && [ -w /dev/shm ] && TMPDIR=/dev/shm; '
    'eval "$s"'
)
"""
Runs the script on its standard input, whose own standard input is then empty.

bash keeps a heredoc of more than 64 KiB in a file below TMPDIR (bash 5.2, redir.c): with a full /tmp
that fails, in /dev/shm it does not. dash and busybox need no file. The variable is not exported.
"""

_LOOP = (
    "while read -r k n; do "
    'echo "$k begin"; echo "$k begin" >&2; '
    'head -c "$n" | { sh -c "$1"; s=$?; cat >/dev/null; exit $s; }; s=$?; '
    'echo "$k end $s"; echo "$k end $s" >&2; '
    "done"
)
"""Each script in a shell of its own: it can neither end this one nor read its requests."""

CONTROL = f"exec sh -c '{_LOOP}' mtpdeploy '{_RUNNER}'"
"""The command of a channel that answers one request after another."""

SINGLE = f"exec sh -c '{_RUNNER}' mtpdeploy"
"""The command of a channel that runs the one script it is sent before end of file."""

NOISE_LIMIT = 1 << 20
"""Bytes that are searched for the first frame at a time; what came before them is forgotten."""

STATUS_LIMIT = 16
"""Bytes in which an exit status and its line end must have come."""

NO_SHELL_LIMIT = 4096
"""Bytes of foreign text kept for the message when no frame comes; a screenful of banner."""


def new_mark() -> str:
    """
    A mark that no output contains by chance: 128 random bits.
    """
    return f"mtpdeploy-{secrets.token_hex(16)}"


def request(script: str, mark: str) -> bytes:
    """
    The bytes that make the control loop run `script` between frames of `mark`.

    Raises:
        ValueError: the script holds a NUL, which no shell can carry.
    """
    body = _whole(script)
    return f"{mark} {len(body)}\n".encode() + body


def single(script: str, mark: str) -> bytes:
    """
    The bytes that make a `SINGLE` channel run `script` after a line `mark begin`.
    """
    return _whole(f"echo '{mark} begin'\n{script}")


def _whole(script: str) -> bytes:
    """
    The script as one compound command: a shell parses that to its end before running any of it.
    """
    if "\0" in script:
        raise ValueError("a script cannot carry a NUL byte")
    return f"{{ :\n{script}\n\n}}\n".encode("utf-8", "surrogateescape")


class Frame:
    """
    Cuts one stream's answer out of its bytes: from `mark begin` to `mark end STATUS`.

    `noise` is what came before, `status` is None until the end was seen.
    """

    def __init__(self, mark: str) -> None:
        self._begin = f"{mark} begin\n".encode()
        self._end = f"{mark} end ".encode()
        self._held = b""
        self.begun = False
        self.status: int | None = None
        self.noise = b""

    def feed(self, data: bytes) -> bytes:
        """
        Take what arrived; give back what is certainly the script's output.
        """
        self._held += data
        if not self.begun:
            before, found, rest = self._held.partition(self._begin)
            if not found:
                self._held = before[-NOISE_LIMIT:]
                return b""
            self.begun, self.noise, self._held = True, before, rest
        at = self._held.find(self._end)
        if at >= 0:
            return self._finish(at)
        keep = _overlap(self._held, self._end)
        output = self._held[: len(self._held) - keep]
        self._held = self._held[len(output) :]
        return output

    def foreign(self) -> bytes:
        """
        What came instead of a frame.
        """
        return self._held if not self.begun else self.noise

    def _finish(self, at: int) -> bytes:
        output, tail = self._held[:at], self._held[at:]
        told = tail[len(self._end) :]
        status = re.match(rb"(\d{1,9})\n", told)
        if status:
            self.status, tail = int(status[1]), b""
        elif len(told) > STATUS_LIMIT:
            output, tail = output + self._end, told
        self._held = tail
        return output


def _overlap(data: bytes, mark: bytes) -> int:
    """
    How many of the last bytes of `data` may be the start of `mark`.
    """
    for length in range(min(len(mark) - 1, len(data)), 0, -1):
        if data.endswith(mark[:length]):
            return length
    return 0


class Answer:
    """
    The answer to one request, put together from both streams.
    """

    def __init__(self, mark: str) -> None:
        self.out = Frame(mark)
        self.err = Frame(mark)
        self._output: list[bytes] = []
        self._errors: list[bytes] = []

    def feed_output(self, data: bytes) -> bytes:
        """
        Take bytes of standard output; give back those that are the script's.
        """
        fresh = self.out.feed(data)
        self._output.append(fresh)
        return fresh

    def feed_errors(self, data: bytes) -> None:
        """
        Take bytes of standard error.
        """
        self._errors.append(self.err.feed(data))

    @property
    def result(self) -> Result | None:
        """
        The result, once both streams have shown their end.
        """
        if self.out.status is None or self.err.status is None:
            return None
        return Result(status=self.out.status, out=b"".join(self._output), err=b"".join(self._errors))
