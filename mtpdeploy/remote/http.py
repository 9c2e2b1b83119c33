"""
HTTP to a server on the box, through a channel of the SSH connection: no port is opened anywhere.

Where the box's sshd forwards no ports, the request is made by a small program on the box instead.
"""

import http.client
import socket
import time
from typing import Any

from msgspec import Struct, json

from mtpdeploy import onbox
from mtpdeploy.core.foreign import Foreign, decoded
from mtpdeploy.remote.box import Box, ForwardingForbiddenError

PYTHON = "python3"
"""The interpreter for requests made on the box where no other is known."""

START_TIMEOUT = 15.0
"""Seconds beside the request's own for a program on the box to start on a busy machine."""


LONGEST_BODY = 64 << 20
"""Bytes of an answer that are read: a thousand times what /metrics or a long generation has."""


class Reply(Struct, frozen=True):
    """
    An HTTP answer. `status` 0 where none came; `problem` then says why.
    """

    status: int
    body: bytes = b""
    problem: str = ""

    def json(self) -> Any:  # noqa: ANN401 - JSON is anything
        """
        The decoded body, or None where it is no JSON.
        """
        try:
            return decoded(self.body)
        except Foreign:
            return None


class Request(Struct, frozen=True):
    """
    What is asked of a server on the box. `body` is a text of JSON or None, `timeout` in seconds.
    """

    port: int
    method: str
    path: str
    body: str | None
    timeout: float


def get(box: Box, port: int, path: str, *, timeout: float, python: str = PYTHON) -> Reply:
    """
    GET a path of the server on the box; what goes wrong is told in the reply, never raised.

    Raises:
        ConnectionLost: the line to the box broke.
    """
    return _ask(box, Request(port, "GET", path, None, timeout), python)


def post(
    box: Box, port: int, path: str, body: dict[str, Any], *, timeout: float, python: str = PYTHON
) -> Reply:
    """
    POST a JSON document; like `get`.
    """
    return _ask(box, Request(port, "POST", path, json.encode(body).decode(), timeout), python)


def _ask(box: Box, request: Request, python: str) -> Reply:
    try:
        channel = box.open_port(request.port)
    except ForwardingForbiddenError:
        return _ask_there(box, request, python)
    except ConnectionRefusedError as error:
        return Reply(0, problem=f"nothing answers on port {request.port}: {error}")
    connection = http.client.HTTPConnection("127.0.0.1", request.port, timeout=request.timeout)
    channel.settimeout(request.timeout)
    connection.sock = channel
    headers = {"Content-Type": "application/json"} if request.body is not None else {}
    try:
        connection.request(request.method, request.path, request.body, headers)
        response = connection.getresponse()
        return Reply(response.status, _body(response, time.monotonic() + request.timeout))
    except TimeoutError:
        return Reply(0, problem=_too_late(request))
    except (OSError, EOFError, http.client.HTTPException) as error:
        return Reply(0, problem=f"{request.method} {request.path}: {type(error).__name__} {error}".rstrip())
    finally:
        connection.close()
        _close(channel)


def _body(response: http.client.HTTPResponse, end: float) -> bytes:
    """
    The whole body, unless it is more than anything a server has to tell, or drips without end.

    Raises:
        TimeoutError: it is not there at `end`, a monotonic time.
        HTTPException: it is longer than `LONGEST_BODY`.
    """
    body = bytearray()
    while piece := response.read1(1 << 16):
        body += piece
        if len(body) > LONGEST_BODY:
            raise http.client.HTTPException(f"more than {LONGEST_BODY} bytes")
        if time.monotonic() > end:
            raise TimeoutError
    if response.length:
        raise http.client.IncompleteRead(bytes(body), response.length)
    return bytes(body)


def _ask_there(box: Box, request: Request, python: str) -> Reply:
    """
    Have a program on the box ask, on a session of its own, so that several can ask at once.
    """
    fields = {"port": request.port, "method": request.method, "path": request.path}
    text = onbox.script("ask", {**fields, "body": request.body, "timeout": request.timeout}, python)
    stream = box.stream(text)
    out = bytearray()
    end = time.monotonic() + request.timeout + START_TIMEOUT
    try:
        while piece := stream.read(max(0.0, end - time.monotonic())):
            out += piece
            if len(out) > 2 * LONGEST_BODY:
                return Reply(0, problem=f"more than {2 * LONGEST_BODY} bytes in answer to {request.path}")
    finally:
        stream.close()
    if piece is None:
        return Reply(0, problem=_too_late(request))
    try:
        return decoded(out, Reply)  # msgspec takes bytes as base64, which is what `ask` writes
    except Foreign:
        return Reply(0, problem=f"`{python}` on the box did not make the request: {bytes(out[-200:])!r}")


def _too_late(request: Request) -> str:
    return f"no answer to {request.method} {request.path} within {request.timeout:.0f} s"


def _close(channel: socket.socket) -> None:
    try:
        channel.close()
    except (OSError, EOFError):
        return
