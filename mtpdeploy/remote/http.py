"""
HTTP to a server on the box, through a channel of the SSH connection: no port is opened anywhere.

Where the box's sshd forwards no ports, the request is made by a small program on the box instead.
"""

import http.client
import socket
from base64 import b64decode
from typing import Any

from msgspec import DecodeError, Struct, json

from mtpdeploy import onbox
from mtpdeploy.remote.box import Box, ForwardingForbiddenError

PYTHON = "python3"
"""The interpreter for requests made on the box where no other is known."""

START_TIMEOUT = 15.0
"""Seconds beside the request's own for a program on the box to start on a busy machine."""


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
            return json.decode(self.body)
        except DecodeError:
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
        return Reply(response.status, response.read())
    except TimeoutError:
        return Reply(0, problem=_too_late(request))
    except (OSError, EOFError, http.client.HTTPException) as error:
        return Reply(0, problem=f"{request.method} {request.path}: {type(error).__name__} {error}".rstrip())
    finally:
        connection.close()
        _close(channel)


def _ask_there(box: Box, request: Request, python: str) -> Reply:
    """
    Have a program on the box ask, on a session of its own, so that several can ask at once.
    """
    fields = {"port": request.port, "method": request.method, "path": request.path}
    text = onbox.script("ask", {**fields, "body": request.body, "timeout": request.timeout}, python)
    stream = box.stream(text)
    out = b""
    try:
        while piece := stream.read(request.timeout + START_TIMEOUT):
            out += piece
    finally:
        stream.close()
    if piece is None:
        return Reply(0, problem=_too_late(request))
    try:
        answer = json.decode(out, type=dict[str, Any])
        return Reply(answer["status"], b64decode(answer["body"]), answer["problem"])
    except (DecodeError, KeyError):
        return Reply(0, problem=f"`{python}` on the box did not make the request: {out[-200:]!r}")


def _too_late(request: Request) -> str:
    return f"no answer to {request.method} {request.path} within {request.timeout:.0f} s"


def _close(channel: socket.socket) -> None:
    try:
        channel.close()
    except (OSError, EOFError):
        return
