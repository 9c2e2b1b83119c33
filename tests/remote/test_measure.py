"""
Generations timed on the box, of a small server that streams as the test says, beside a made-up nvidia-smi.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.errors import BoxUnreachable, ConnectionLost
from mtpdeploy.remote.measure import Measured, measure
from tests.fakes.box import LocalBox, LocalStream

PIECES = (1, 4, 7, 10)
"""Tokens so far, piece by piece."""

PAUSE = 0.05
"""Seconds between two pieces."""

ROW = "0, 405.00, 600.00, 2430, 3090, 97, 78450"


def piece(tokens: int, *, last: bool = False) -> dict[str, Any]:
    """
    One event of a streamed /generate.
    """
    meta: dict[str, Any] = {"completion_tokens": tokens, "finish_reason": None}
    if last:
        meta |= {"finish_reason": {"type": "length"}, "spec_verify_ct": 3, "spec_num_correct_drafts": 6}
    return {"text": "word " * tokens, "meta_info": meta}


class Streaming:
    """
    Streams `PIECES` to every request, or answers it as `answer` says.
    """

    def __init__(self) -> None:
        self.answer: Callable[[Any], tuple[int, bytes]] | None = None
        self.together = threading.Barrier(1)
        self.bodies: list[Any] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """
        Answer no more.
        """
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                if outer.answer is not None:
                    status, data = outer.answer(body)
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    return
                outer.together.wait(20)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for tokens in PIECES:
                    event = json.dumps(piece(tokens, last=tokens == PIECES[-1])).encode()
                    self.wfile.write(b"data: " + event + b"\n\n")
                    time.sleep(PAUSE)
                self.wfile.write(b"data: [DONE]\n\n")

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def server() -> Iterator[Streaming]:
    """
    A server that streams.
    """
    made = Streaming()
    yield made
    made.stop()


@pytest.fixture
def make_box(tmp_path: Path) -> Iterator[Callable[[str], LocalBox]]:
    """
    Boxes with this text as their nvidia-smi.
    """
    made = []

    def make(nvidia_smi: str) -> LocalBox:
        bin_folder = tmp_path / "bin"
        bin_folder.mkdir()
        (bin_folder / "nvidia-smi").write_text(f"#!/bin/sh\n{nvidia_smi}\n")
        (bin_folder / "nvidia-smi").chmod(0o755)
        made.append(LocalBox(tmp_path, path=f"{bin_folder}{os.pathsep}{os.environ['PATH']}"))
        return made[-1]

    yield make
    for box in made:
        box.close()


def ask(box: LocalBox, port: int, *sizes: int) -> Measured:
    """
    Waves of so many requests.
    """
    waves = [[{"text": f"{n}.{m}", "stream": True} for m in range(size)] for n, size in enumerate(sizes)]
    return measure(box, waves, port=port, python="python3", timeout=20.0)


class TestStreams:
    def test_first_and_last_piece(self, make_box: Callable[[str], LocalBox], server: Streaming) -> None:
        """
        Both have their moment, taken on the box; the whole text and the last metadata are told.
        """
        (((answer,), _), _) = (ask(make_box("exit 9"), server.port, 1, 1).waves, None)

        assert (200, "") == (answer.status, answer.problem)
        assert answer.first is not None
        assert answer.last is not None
        assert (1, 10) == (answer.first[1], answer.last[1])
        assert answer.last[0] - answer.first[0] >= (len(PIECES) - 1) * PAUSE
        assert "word " * 10 == answer.text
        assert 6 == answer.meta["spec_num_correct_drafts"]

    def test_one_wave_after_the_other(self, make_box: Callable[[str], LocalBox], server: Streaming) -> None:
        """
        Those of a wave are under way together: here each waits for the other.
        """
        server.together = threading.Barrier(2)
        found = ask(make_box("exit 9"), server.port, 2, 2)

        assert [[200, 200], [200, 200]] == [[answer.status for answer in wave] for wave in found.waves]
        assert {"0.0", "0.1"} == {body["text"] for body in server.bodies[:2]}

    def test_an_answer_in_one_piece(self, make_box: Callable[[str], LocalBox], server: Streaming) -> None:
        """
        A server that does not stream is counted, and not timed.
        """
        server.answer = lambda _: (200, json.dumps(piece(10, last=True)).encode())
        (((answer,),), _) = (ask(make_box("exit 9"), server.port, 1).waves, None)

        assert answer.first == answer.last
        assert 3 == answer.meta["spec_verify_ct"]

    @pytest.mark.parametrize(
        ("status", "data", "problem"),
        [
            (400, b'{"error": "no"}', '{"error": "no"}'),
            (200, b"<html>", "JSONDecodeError"),
            (200, b"[]", "TypeError"),
            (200, b'{"error": {"message": "aborted"}}', "aborted"),
        ],
    )
    def test_what_is_no_answer(
        self, make_box: Callable[[str], LocalBox], server: Streaming, status: int, data: bytes, problem: str
    ) -> None:
        """
        It is told, whatever it is.
        """
        server.answer = lambda _: (status, data)
        ((answer,),) = ask(make_box("exit 9"), server.port, 1).waves

        assert status == answer.status
        assert problem in answer.problem

    def test_nothing_listens(self, make_box: Callable[[str], LocalBox], server: Streaming) -> None:
        """
        After a wave without a single answer no further one is sent.
        """
        server.stop()
        found = ask(make_box("exit 9"), server.port, 1, 1)

        assert 1 == len(found.waves)
        assert (0, True) == (found.waves[0][0].status, "refused" in found.waves[0][0].problem)


class TestPower:
    def test_sampled_meanwhile(self, make_box: Callable[[str], LocalBox], server: Streaming) -> None:
        """
        Samples lie between the first request and the last token, on the same clock.
        """
        found = ask(make_box(f"echo '{ROW}, 0x0'"), server.port, 1)
        ((answer,),) = found.waves

        assert "" == found.power_problem
        assert 405.0 == found.samples[0].readings[0].watts
        assert answer.last is not None
        assert found.samples[0].begun < answer.last[0]

    def test_an_older_driver(self, make_box: Callable[[str], LocalBox], server: Streaming) -> None:
        """
        A field that it does not know is asked for by its older name, and then left out.
        """
        refusal = "case $* in *reasons*) echo 'Field is not a valid field to query.'; exit 2;; esac"
        found = ask(make_box(f"{refusal}\necho '{ROW}'"), server.port, 2, 2)

        assert (405.0, None) == (found.samples[0].readings[0].watts, found.samples[0].readings[0].held_back)

    def test_one_that_fails(self, make_box: Callable[[str], LocalBox], server: Streaming) -> None:
        """
        Its complaint is told, and the answers are there all the same.
        """
        found = ask(make_box("echo 'Failed to initialize NVML'; exit 255"), server.port, 1, 1)

        assert ((), "Failed to initialize NVML") == (found.samples, found.power_problem)
        assert 200 == found.waves[0][0].status

    def test_there_is_none(self, tmp_path: Path, server: Streaming, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        No nvidia-smi is said, and no failure.
        """
        monkeypatch.setattr("mtpdeploy.remote.measure.QUERIES", ("index",))
        with LocalBox(tmp_path, path="/usr/bin:/bin") as box:
            found = ask(box, server.port, 1)

        assert "there is no nvidia-smi" == found.power_problem


class NoProgramBox(LocalBox):
    """
    A box that starts no second program.
    """

    def stream(self, script: str) -> LocalStream:
        """
        Refused.
        """
        raise BoxUnreachable(f"no session for {len(script)} bytes")


def test_a_box_without_a_second_program(tmp_path: Path, server: Streaming) -> None:
    """
    The requests go through a channel then, one by one and not streamed.
    """
    server.answer = lambda _: (200, json.dumps(piece(10, last=True)).encode())
    with NoProgramBox(tmp_path) as box:
        found = ask(box, server.port, 1, 2)

    assert [1, 2] == [len(wave) for wave in found.waves]
    assert [False] * 3 == [body["stream"] for body in server.bodies]
    assert "starts no program" in found.power_problem
    assert found.waves[0][0].first is None


def test_a_broken_line_is_told(tmp_path: Path) -> None:
    """
    It is the caller's to try again.
    """
    with LocalBox(tmp_path) as box:
        box.broken = True
        with pytest.raises(ConnectionLost):
            ask(box, 1, 1)
