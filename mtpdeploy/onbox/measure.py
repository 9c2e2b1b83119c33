"""
Generations asked of a server on the box itself, and what its GPUs draw meanwhile.

The times are taken here, so that the way to the box is in none of them. The answers are streamed: from the
first token on the server only decodes.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from typing import Any

from mtpdeploy.onbox.asked import Asked, nvidia_smi

LONGEST_TEXT = 20000
"""Characters of an answer that are told: some 5,000 tokens, far more than is asked for."""

LONGEST_REFUSAL = 300


class Sampler(threading.Thread):
    """
    Asks nvidia-smi again and again, a short-lived process each time: nothing of it outlives the program.

    `queries` are tried in their order until one is understood: fields are named otherwise by older drivers.
    """

    def __init__(self, queries: list[str], pause: float, limit: float) -> None:
        super().__init__(daemon=True)
        self.program = nvidia_smi(dict(os.environ))
        self.queries = list(queries)
        self.pause = pause
        self.limit = limit
        self.samples: list[dict[str, Any]] = []
        self.problem = "" if self.program else "there is no nvidia-smi"
        self.over = threading.Event()

    def run(self) -> None:
        """
        Sample until told to stop, or until there is no use in it.
        """
        while self.queries and not self.problem and not self.over.is_set():
            words = [self.program or "", "--query-gpu=" + self.queries[0], "--format=csv,noheader,nounits"]
            begun = time.monotonic()
            asked = Asked(words, dict(os.environ))
            text = asked.answer(begun + self.limit)
            if text is None:
                self.problem = asked.problem or "nvidia-smi did not answer within %g s" % self.limit
            elif asked.status == 0:
                self.samples.append({"begun": begun, "ended": time.monotonic(), "text": text})
                self.over.wait(self.pause)
            elif len(self.queries) > 1:
                self.queries.pop(0)
            else:
                self.problem = asked.complaint()

    def stop(self) -> dict[str, Any]:
        """
        What was sampled, by which fields, and what went wrong.
        """
        self.over.set()
        if self.ident is not None:
            self.join(self.limit + 1)
        fields = self.queries[0] if self.queries else ""
        return {"fields": fields, "samples": self.samples, "problem": self.problem}


class Generation(threading.Thread):
    """
    One request, from its first byte to its last.

    `first` and `last` are the first and the last piece of the answer that told how many tokens there are:
    its moment (monotonic clock) and that number.
    """

    def __init__(self, port: int, path: str, body: str, timeout: float) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.path = path
        self.body = body
        self.until = time.monotonic() + timeout
        self.status = 0
        self.problem = ""
        self.text = ""
        self.meta: dict[str, Any] = {}
        self.first: list[float] | None = None
        self.last: list[float] | None = None
        self.begun = time.monotonic()

    def run(self) -> None:
        """
        Ask, and read to the end.
        """
        self.begun = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._left())
        try:
            connection.request("POST", self.path, self.body, {"Content-Type": "application/json"})
            self._read(connection, connection.getresponse())
        except (OSError, TypeError, ValueError, http.client.HTTPException) as error:
            self.problem = ("%s %s" % (type(error).__name__, error)).rstrip()
        finally:
            connection.close()

    def told(self) -> dict[str, Any]:
        """
        What came of it.
        """
        names = ("status", "problem", "meta", "first", "last", "begun")
        return dict({name: getattr(self, name) for name in names}, text=self.text[:LONGEST_TEXT])

    def _left(self) -> float:
        return max(0.05, self.until - time.monotonic())

    def _read(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        if response.status != 200:
            self.problem = response.read(LONGEST_REFUSAL).decode("utf-8", "replace")
            return
        if "event-stream" not in (response.getheader("Content-Type") or ""):
            self._take(json.loads(response.read()))
            return
        for line in response:
            if connection.sock is not None:
                connection.sock.settimeout(self._left())
            if time.monotonic() > self.until:
                raise OSError("the answer did not end in time")
            data = line[5:].strip() if line.startswith(b"data:") else b""
            if data == b"[DONE]":
                return
            if data:
                self._take(json.loads(data))

    def _take(self, piece: Any) -> None:  # noqa: ANN401 - JSON is anything
        """
        One piece of the answer; its text is all of it so far, or, where the server is told so, what is new.
        """
        now = time.monotonic()
        if not isinstance(piece, dict):
            raise TypeError("the answer is no object of JSON")
        if piece.get("error"):
            self.problem = str(piece["error"])[:LONGEST_REFUSAL]
        text = piece.get("text")
        if isinstance(text, str):
            self.text = text if text.startswith(self.text) else self.text + text
        meta = piece.get("meta_info")
        self.meta = meta if isinstance(meta, dict) else {}
        tokens = self.meta.get("completion_tokens")
        if isinstance(tokens, int) and tokens > 0:
            self.last = [now, tokens]
            self.first = self.first or self.last


def wave(request: dict[str, Any], bodies: list[str]) -> list[dict[str, Any]]:
    """
    Requests sent at once, and waited for.
    """
    asked = [Generation(request["port"], request["path"], body, request["timeout"]) for body in bodies]
    for generation in asked:
        generation.start()
    for generation in asked:
        generation.join(request["timeout"] + 1)
    return [generation.told() for generation in asked]


def main(request: dict[str, Any]) -> None:
    """
    Send `{"port", "path", "waves", "timeout", "queries", "pause", "limit"}` and print one JSON document.

    `waves` are lists of bodies (texts of JSON); those of one wave are sent at once, one wave after the other.
    `queries` are lists of nvidia-smi's fields, best first; `pause` and `limit` are seconds between two
    samples and for one.
    """
    sampler = Sampler(request["queries"], request["pause"], request["limit"])
    sampler.start()
    waves = []
    for bodies in request["waves"]:
        waves.append(wave(request, bodies))
        if not any(told["status"] for told in waves[-1]):
            break
    print(json.dumps({"waves": waves, "power": sampler.stop()}), flush=True)
