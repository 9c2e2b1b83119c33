"""The HTTP server of the main process, on threads, with uvicorn's access lines."""

from __future__ import annotations

import http.server
import json
import socketserver
import uuid
from typing import Any, Dict, Iterator, Optional

from . import lines
from .answers import Answers, BadRequestError, chat_body, chat_chunk, join, meta_info, usage
from .pipes import Message

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 500: "Internal Server Error"}
REASONS[503] = "Service Unavailable"
OPEN_PATHS = ("/health", "/health_generate", "/metrics")


class Front(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Listens; one thread a connection."""

    daemon_threads = True
    request_queue_size = 128
    answers: Answers

    def server_bind(self) -> None:
        """Bind without asking DNS for our own name, as http.server would."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no error of the server."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Front

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Nothing: `_line` writes the access lines."""

    def _line(self, status: int) -> None:
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        reason = REASONS.get(status, "")
        lines.log(f'INFO:     {client} - "{self.command} {self.path} HTTP/1.1" {status} {reason}')

    def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
        self._line(status)
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _json(self, status: int, body: Dict[str, Any]) -> None:
        self._send(status, json.dumps(body).encode())

    def _error(self, status: int, text: str) -> None:
        self._json(status, {"object": "error", "message": text, "type": REASONS.get(status), "code": status})

    def _allowed(self) -> bool:
        key = self.server.answers.args.get("api_key")
        if not key or self.path in OPEN_PATHS or self.headers.get("authorization") == f"Bearer {key}":
            return True
        self._json(401, {"error": "Unauthorized"})
        return False

    def do_GET(self) -> None:
        """Health, facts and metrics."""
        if not self._allowed():
            return
        answers, path = self.server.answers, self.path.split("?")[0].rstrip("/")
        routes = {
            "/health": answers.health,
            "/health_generate": answers.health,
            "/model_info": answers.model_info,
            "/get_model_info": answers.model_info,
            "/server_info": answers.server_info,
            "/get_server_info": answers.server_info,
            "/v1/models": answers.models,
        }
        if path in routes:
            self._json(*routes[path]())
            return
        if path in ("/get_load", "/v1/loads"):
            self._load(path)
            return
        text = answers.metrics() if path == "/metrics" else None
        if text is None:
            self._error(404, "Not Found")
        else:
            self._send(200, text.encode(), "text/plain; version=0.0.4")

    def _load(self, path: str) -> None:
        loads = self.server.answers.load(path)
        if loads is None:
            self._error(404, "Not Found")
        else:
            document = {"loads": loads, "version": self.server.answers.settings.version}
            self._send(200, json.dumps(loads if path == "/get_load" else document).encode())

    def do_POST(self) -> None:
        """Requests for text."""
        length = int(self.headers.get("content-length") or 0)
        data = self.rfile.read(length)
        if not self._allowed():
            return
        try:
            body = json.loads(data or b"{}")
            self._generate(self.path.split("?")[0].rstrip("/"), body)
        except (ValueError, BadRequestError) as error:
            self._error(400, str(error))
        except TimeoutError:
            self._error(500, "the scheduler does not answer")

    def _generate(self, path: str, body: Dict[str, Any]) -> None:
        answers = self.server.answers
        warmup = self.headers.get("x-demo-warmup") is not None
        if answers.draining:
            self._error(503, "The server is shutting down.")
        elif path == "/freeze_gc":
            self._send(200, b"Garbage collection frozen.\n", "text/plain")
        elif path == "/v1/chat/completions":
            self._chat(body, answers.chat(body, warmup=warmup))
        elif path in ("/generate", "/v1/completions"):
            self._complete(path, body, answers.complete(body, warmup=warmup))
        else:
            self._error(404, "Not Found")

    def _chat(self, body: Dict[str, Any], pieces: Iterator[Message]) -> None:
        identity, model = uuid.uuid4().hex, str(body.get("model") or self.server.answers.model)
        last: Message = {}
        if not body.get("stream"):
            text, last = join(pieces)
            self._json(200, chat_body(identity, model, text, last))
            return
        self._stream_head()
        for piece in pieces:
            last = piece
            self._event(chat_chunk(identity, model, piece))
        if (body.get("stream_options") or {}).get("include_usage"):
            final = chat_chunk(identity, model, {})
            self._event({**final, "choices": [], "usage": usage(last)})
        self._event(None)

    def _complete(self, path: str, body: Dict[str, Any], pieces: Iterator[Message]) -> None:
        identity, answers = uuid.uuid4().hex, self.server.answers
        about = (answers.args, answers.settings.version)
        if body.get("stream"):
            self._stream_head()
            text = ""
            for piece in pieces:
                text += str(piece.get("text") or "")
                self._event({"text": text, "meta_info": meta_info(identity, piece, *about)})
            self._event(None)
            return
        text, last = join(pieces)
        if path == "/generate":
            self._json(200, {"text": text, "meta_info": meta_info(identity, last, *about)})
            return
        choice = {"index": 0, "text": text, "finish_reason": last.get("finish_reason")}
        model = body.get("model") or self.server.answers.model
        body = {"id": identity, "object": "text_completion", "model": model, "choices": [choice]}
        self._json(200, {**body, "usage": usage(last)})

    def _stream_head(self) -> None:
        self._line(200)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _event(self, body: Optional[Dict[str, Any]]) -> None:
        """One server-sent event; None ends the stream."""
        data = b"data: " + (b"[DONE]" if body is None else json.dumps(body).encode()) + b"\n\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        if body is None:
            self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
