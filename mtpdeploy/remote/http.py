"""
HTTP to a server on the box, through a channel of the SSH connection: no port is opened anywhere.
"""

import http.client
import socket
from typing import Any

from msgspec import DecodeError, Struct, json

from mtpdeploy.remote.box import Box

CONNECT_TIMEOUT = 10.0
"""Seconds for a channel to the port; a listener on the same machine answers at once or never."""


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


def get(box: Box, port: int, path: str, *, timeout: float) -> Reply:
    """
    GET a path of the server on the box; what goes wrong is told in the reply, never raised.

    Raises:
        ConnectionLost: the line to the box broke.
    """
    return _ask(box, port, "GET", path, None, timeout)


def post(box: Box, port: int, path: str, body: dict[str, Any], *, timeout: float) -> Reply:
    """
    POST a JSON document; like `get`.
    """
    return _ask(box, port, "POST", path, body, timeout)


def _ask(box: Box, port: int, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> Reply:
    try:
        channel = box.open_port(port)
    except ConnectionRefusedError as error:
        return Reply(0, problem=f"nothing answers on port {port}: {error}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    channel.settimeout(timeout)
    connection.sock = channel
    headers = {"Content-Type": "application/json"} if body is not None else {}
    try:
        connection.request(method, path, json.encode(body) if body is not None else None, headers)
        response = connection.getresponse()
        return Reply(response.status, response.read())
    except TimeoutError:
        return Reply(0, problem=f"no answer to {method} {path} within {timeout:.0f} s")
    except (OSError, EOFError, http.client.HTTPException) as error:
        return Reply(0, problem=f"{method} {path}: {type(error).__name__} {error}".rstrip())
    finally:
        connection.close()
        _close(channel)


def _close(channel: socket.socket) -> None:
    try:
        channel.close()
    except (OSError, EOFError):
        return
