"""
Following where no reader can run on the box: the same frames, asked for again and again.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

from mtpdeploy.clock import Clock
from mtpdeploy.core.foreign import decoded
from mtpdeploy.core.launch import shell_path
from mtpdeploy.errors import ConnectionLost
from mtpdeploy.remote import frames, retry
from mtpdeploy.remote.box import Box, Stream

BLOCK = 4096
"""
Bytes of a block of dd: at most as many come twice a question, and 1 MiB is read in 256 steps.
"""

BLOCKS = 256
"""
Blocks an answer holds at most: 1 MiB, which `Box.run` carries without growing slow.
"""

QUESTION = r"""
cd {folder} || exit 1
offset={offset}
field() {{
  sed -n 's/.*"'"$1"'": *"\{{0,1\}}\([^",}}]*\).*/\1/p' proc | sed 1q
}}
state=unknown
if [ -f proc ]; then
  pid=$(field pid) start=$(field start) boot=$(field boot) state=gone
  if ! [ "$pid" -gt 1 ] 2>/dev/null; then
    state=unknown
  elif [ -r "/proc/$pid/stat" ]; then
    stat=$(cat "/proc/$pid/stat" 2>/dev/null)
    set -- ${{stat##*) }}
    [ "$1" != Z ] && [ "$1" != X ] && [ "${{20}}" = "$start" ] && state=alive
    now=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
    [ -n "$boot" ] && [ -n "$now" ] && [ "$boot" != "$now" ] && state=gone
  elif ! [ -d /proc/self ]; then
    set -- $(LC_ALL=C TZ=UTC ps -o state= -o lstart= -p "$pid")
    case $1 in Z*) ;; *) [ "$2 $3 $4 $5 $6" = "$start" ] && state=alive ;; esac
  fi
fi
end= stop=
[ -f exit ] && end=$(tr -d '\n' <exit)
[ -f stop ] && stop=$(tr -d '\n' <stop)
inode=0 size=0
[ -f {log} ] && set -- $(ls -dniL {log}) && inode=$1 size=$6
printf '%s\n' "$state" "$inode" "$size" "$(date +%s)" "$end" "$stop"
if [ "$size" -gt "$offset" ] && [ "$offset" -ge 0 ]; then
  dd if={log} bs={block} skip=$((offset / {block})) count={blocks} 2>/dev/null
fi
exit 0
"""


def polled_on(
    box: Box, clock: Clock, interval: float = retry.FALLBACK_POLL
) -> Callable[[dict[str, Any]], Stream]:
    """
    For a `Follower`: asks `box` again every `interval` seconds with sh, sed, ls and dd alone.

    The box is used by the follower's thread and must be of its own. CPU, processes and the listener are
    not known this way.
    """
    return lambda request: PolledStream(box, clock, interval, request)


class PolledStream:
    """
    A `Stream` of the frames that a reader would send.
    """

    def __init__(self, box: Box, clock: Clock, interval: float, request: dict[str, Any]) -> None:
        self._box = box
        self._clock = clock
        self._interval = interval
        self._request = request
        self._offset: int = request["offset"]
        known = request["known"]
        self._inode: int | None = known.get("ino")
        self._deleted: bool = known["deleted"]
        self._described: int | None = None
        self._closed = threading.Event()
        self._ended = False
        self._behind = False
        self._next_heartbeat = clock.monotonic()
        self._untold_since: float | None = None
        self._first = frames.MAGIC + request["nonce"].encode("ascii") + b"\n"

    def read(self, timeout: float) -> bytes | None:
        """
        The frames of the next answer; None when it brought nothing; b"" behind the end.

        Raises:
            ConnectionLost: the line to the box broke.
        """
        if not self._first and not self._behind:
            self._clock.sleep(min(timeout, self._interval), self._closed)
        if self._closed.is_set() or self._ended:
            return b""
        first, self._first = self._first, b""
        return first + self._ask() or None

    def close(self) -> None:
        """
        Ask no more.
        """
        self._closed.set()

    def _ask(self) -> bytes:
        asked = self._offset
        question = QUESTION.format(
            folder=shell_path(self._request["run_dir"]),
            log=shell_path(self._request["log"]),
            offset=asked,
            block=BLOCK,
            blocks=BLOCKS,
        )
        result = self._box.run(question, limit=retry.SILENCE_LIMIT)
        parts = result.out.split(b"\n", 6)
        if result.status != 0 or len(parts) != 7:
            raise ConnectionLost(f"the box did not answer; it said {frames.shown(result.out + result.err)}")
        state, inode, size, moment, end, stop, data = parts
        heard = self._log_state(int(inode), int(size))
        data = data[asked % BLOCK :]
        if self._offset == asked and data:
            heard += b"D %d %d\n" % (asked, len(data)) + data
            self._offset += len(data)
        self._behind = bool(int(inode)) and self._offset < int(size)
        now = self._clock.monotonic()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._request["heartbeat"]
            heard += _frame("H", {"t": float(moment), "size": int(size)})
        if not self._behind and (end or state == b"gone" or self._never_told(state, now)):
            self._ended = True
            record = _record(end) if end else {"vanished": True}
            heard += _frame("X", {**record, "stopped": _record(stop).get("by", "")})
        return heard

    def _never_told(self, state: bytes, now: float) -> bool:
        """
        Whether the run has had no process for so long that none is about to come.
        """
        if state != b"unknown" or self._untold_since is None:
            self._untold_since = now
        return now - self._untold_since >= retry.UNTOLD_LIMIT

    def _log_state(self, inode: int, size: int) -> bytes:
        """
        Frames about the file itself; none while it only grows.
        """
        heard = b""
        if not inode and self._inode and not self._deleted:
            self._deleted = True
            heard += _frame("T", {"what": "deleted"})
        elif inode and self._inode and inode != self._inode:
            self._offset = 0
            heard += _frame("T", {"what": "replaced"})
        elif inode and size < self._offset:
            self._offset = 0
            heard += _frame("T", {"what": "truncated"})
        elif inode and self._offset < 0:
            self._offset = max(0, size + self._offset)
        self._inode = inode or self._inode
        if inode != self._described:
            self._described = inode
            heard += _frame("I", {"dev": 0, "ino": inode, "size": size, "offset": self._offset})
        return heard


def _frame(kind: str, content: dict[str, Any]) -> bytes:
    return f"{kind} {json.dumps(content)}\n".encode("ascii")


def _record(end: bytes) -> dict[str, Any]:
    """
    The exit record; one that cannot be read still tells that the run has ended.
    """
    try:
        content = decoded(end)
    except ValueError:
        return {"status": None, "damaged": frames.shown(end)}
    return content if isinstance(content, dict) else {"status": content}
