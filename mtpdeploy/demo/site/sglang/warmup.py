"""The first request: SGLang asks itself, over its own port, before it says that it is ready."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Callable, Dict, Optional, Tuple

from . import lines
from .refusals import PACKAGES
from .settings import Settings

TRIES, TRY_S, CONNECT_S, REQUEST_S = 120, 1.0, 5.0, 600.0
PROMPT = {"text": "The capital city of France is"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def ask(
    address: Tuple[str, int], method: str, path: str, body: Optional[Dict[str, Any]], seconds: float
) -> Tuple[int, bytes]:
    """One HTTP request; status and body. Raises OSError where nobody answers."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: {address[0]}\r\ncontent-length: {len(data)}\r\n"
    head += "x-demo-warmup: 1\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    with socket.create_connection(address, timeout=seconds) as line:
        line.sendall(head.encode() + data)
        answer = b""
        while True:
            part = line.recv(1 << 16)
            if not part:
                break
            answer += part
    top, _, rest = answer.partition(b"\r\n\r\n")
    return (int(top.split(b" ")[1]) if b" " in top else 0), rest


class Warmup:
    """Waits for the port, sends a first request, and says ready; `fail` ends the process with status 137."""

    def __init__(self, settings: Settings, args: Dict[str, Any], fail: Callable[[], None]) -> None:
        self.settings = settings
        host = str(args["host"])
        self.address = ("127.0.0.1" if host in ("0.0.0.0", "::") else host, int(args["port"]))  # noqa: S104
        self.model = str(args["served_model_name"])
        self.key = args.get("api_key")
        self.fail = fail

    def _model_info(self) -> Dict[str, Any]:
        error: Exception = OSError("not tried")
        for attempt in range(TRIES):
            # The first look is early: the demo's listener is there at once.
            time.sleep((TRY_S if attempt else 0.2) / self.settings.speed)
            try:
                status, data = ask(self.address, "GET", "/model_info", None, self._scaled(CONNECT_S))
                if status == 200:
                    return dict(json.loads(data))
                error = AssertionError(f"res=<Response [{status}]>")
            except (OSError, ValueError) as refused:
                error = refused
        self._give_up(f"{type(error).__name__}: {error}")
        return {}

    def _scaled(self, seconds: float) -> float:
        return max(seconds / self.settings.speed, 0.5)

    def _give_up(self, last: str) -> None:
        where = (
            f'  File "{PACKAGES}/sglang/srt/entrypoints/http_server.py", line 1763, in _execute_server_warmup'
        )
        lines.log(
            f"Initialization failed. warmup error: Traceback (most recent call last):\n{where}\n"
            f'    assert res.status_code == 200, f"{{res.text}}"\n{last}\n'
        )
        self.fail()

    def run(self, *, broken: bool) -> bool:
        """Whether the first request came through; `broken` makes it fail."""
        info = self._model_info()
        if not info:
            return False
        body: Dict[str, Any] = {**PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 8}}
        path = "/generate"
        if info.get("has_image_understanding"):
            path = "/v1/chat/completions"
            content = [PICTURE, {"type": "text", "text": "Describe the image."}]
            body = {"model": self.model, "messages": [{"role": "user", "content": content}], "max_tokens": 8}
        failure = '{"object":"error","message":"Internal Server Error","code":500}' if broken else ""
        if not broken:
            try:
                status, data = ask(self.address, "POST", path, body, self._scaled(REQUEST_S))
                failure = "" if status == 200 else data.decode(errors="replace") or f"<Response [{status}]>"
            except OSError as error:
                failure = str(error)
        if failure:
            self._give_up(f"AssertionError: {failure}")
        return not failure
