"""Lines of JSON between the server's processes: main -> scheduler -> detokenizer -> main."""

from __future__ import annotations

import contextlib
import json
import os
import select
from typing import Any, Dict, Iterator, List, Optional

Message = Dict[str, Any]


def send(descriptor: int, message: Message) -> bool:
    """Write one message; False if the other side is gone."""
    data = json.dumps(message).encode() + b"\n"
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True


class Reader:
    """Reads messages from a pipe; `closed` once the writer is gone."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.rest = b""
        self.closed = False

    def poll(self, seconds: Optional[float]) -> List[Message]:
        """The messages that have arrived, waiting so long for a first one (None: as long as it takes)."""
        if self.closed:
            return []
        with contextlib.suppress(InterruptedError):
            if not select.select([self.descriptor], [], [], seconds)[0]:
                return []
            data = os.read(self.descriptor, 1 << 16)
            self.closed = not data
            self.rest += data
        *whole, self.rest = self.rest.split(b"\n")
        return [json.loads(line) for line in whole if line]

    def messages(self) -> Iterator[Message]:
        """Every message until the writer is gone."""
        while not self.closed:
            yield from self.poll(None)
