"""
The questions to a ready server, asked of a small one that answers as the test says.
"""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.core.outcome import Check, Report
from mtpdeploy.core.proof import Proof
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.verify import Verifier
from tests.fakes.box import LocalBox

MTP = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
CHUNK = 512

Answer = tuple[int, Any]


def completion(prompt_tokens: int = 9, tokens: int = 16) -> dict[str, Any]:
    """
    A chat completion, as far as it matters.
    """
    return {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}}


TEXT = "and counted the ships that passed below, one after the other, until the fog came in from the sea."


def generation(text: str = TEXT, **meta: Any) -> dict[str, Any]:
    """
    A finished reply of /generate in one piece, with an accept length of 2.9 unless told otherwise.
    """
    counted = meta or {"spec_verify_ct": 40, "spec_num_correct_drafts": 76}
    return {"text": text, "meta_info": {"completion_tokens": 117, "e2e_latency": 0.5, **counted}}


class Server:
    """
    Answers every path as `answers` says; `asked` are the bodies that came, by path.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Any], Answer]] = {
            "/server_info": lambda _: (
                200,
                {
                    "chunked_prefill_size": CHUNK,
                    "context_length": 32768,
                    "max_total_num_tokens": 131090,
                    "internal_states": [{"effective_max_running_requests_per_dp": 16}],
                },
            ),
            "/v1/chat/completions": lambda body: (
                200,
                completion(len(body["messages"][0]["content"].split())),
            ),
            "/generate": lambda _: (200, generation()),
        }
        self.asked: dict[str, list[Any]] = {}
        self.together = 0
        self._now = 0
        self._lock = threading.Lock()
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

    def answer(self, path: str, body: Any) -> Answer:
        """
        What the test says.
        """
        with self._lock:
            self.asked.setdefault(path, []).append(body)
            self._now += 1
            self.together = max(self.together, self._now)
        try:
            given = self.answers.get(path)
            return given(body) if given else (404, {"detail": "Not Found"})
        finally:
            with self._lock:
                self._now -= 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(*outer.answer(self.path, None))

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                self._say(*outer.answer(self.path, json.loads(data)))

            def _say(self, status: int, answer: Any) -> None:
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    """
    A server that answers well.
    """
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[LocalBox]:
    """
    A box whose ports are this machine's.
    """
    with LocalBox(tmp_path) as made:
        yield made


def ask(box: LocalBox, server: Server, **flags: Any) -> Report:
    """
    Ask everything.
    """
    given = {"model_path": "m", "port": server.port, **MTP, **flags}
    wanted = {name: value for name, value in given.items() if value is not None}
    return Verifier(box, ServerSpec(name="s", flags=wanted)).report()


def check(report: Report, name: str) -> Check:
    """
    One answer.
    """
    return next(found for found in report.checks if found.name == name)


class TestGood:
    def test_a_server_that_answers_and_speculates(self, box: LocalBox, server: Server) -> None:
        """
        All questions are answered, and the accept length of our own request is the proof.
        """
        report = ask(box, server)

        assert [
            ("answers", True),
            ("a prompt longer than one prefill chunk", True),
            ("two at once", True),
            ("the same prefix again", True),
            ("makes sense", True),
            ("speculates", True),
            ("runs as asked", True),
            ("flags as asked", True),
        ] == [(c.name, c.passed) for c in report.checks]
        assert (True, True, 2.9) == (report.answers, report.mtp_proven, report.accept_length)
        assert {"max_running_requests": 16, "max_total_num_tokens": 131090, "context_length": 32768} == (
            report.figures
        )

    def test_the_long_prompt_is_longer_than_a_chunk(self, box: LocalBox, server: Server) -> None:
        """
        By its words alone: a tokenizer makes at least as many tokens of them.
        """
        ask(box, server)
        words = [len(body["messages"][0]["content"].split()) for body in server.asked["/v1/chat/completions"]]

        assert 2 == sum(count > CHUNK for count in words)

    def test_the_same_prefix_again(self, box: LocalBox, server: Server) -> None:
        """
        Two prompts share their beginning, which is longer than a prefill chunk.
        """
        ask(box, server)
        texts = [body["messages"][0]["content"] for body in server.asked["/v1/chat/completions"]]
        first, second = (text for text in texts if len(text.split()) > CHUNK)
        shared = next(n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)

        assert len(first[:shared].split()) > CHUNK
        assert first != second

    def test_two_requests_are_under_way_at_once(self, box: LocalBox, server: Server) -> None:
        """
        The second of the two is sent while the first waits for its answer.
        """
        both = threading.Barrier(2, timeout=20)
        plain = server.answers["/v1/chat/completions"]

        def wait_for_both(body: Any) -> Answer:
            if body["max_tokens"] == 48:
                both.wait()
            return plain(body)

        server.answers["/v1/chat/completions"] = wait_for_both

        assert check(ask(box, server), "two at once").passed
        assert server.together >= 2

    def test_the_prompt_fits_a_short_context(self, box: LocalBox, server: Server) -> None:
        """
        Where the context is shorter than a prefill chunk, the long prompt keeps within it.
        """
        info = {"chunked_prefill_size": 8192, "context_length": 1024}
        server.answers["/server_info"] = lambda _: (200, info)

        ask(box, server)
        words = [len(body["messages"][0]["content"].split()) for body in server.asked["/v1/chat/completions"]]

        assert 200 < max(words) < 300

    def test_the_prompt_fits_few_tokens_for_the_pool(self, box: LocalBox, server: Server) -> None:
        """
        SGLang refuses a prompt that its pool cannot hold, however long the context may be.
        """
        info = {"chunked_prefill_size": 8192, "context_length": 32768, "max_total_num_tokens": 1024}
        server.answers["/server_info"] = lambda _: (200, info)

        ask(box, server)
        words = [len(body["messages"][0]["content"].split()) for body in server.asked["/v1/chat/completions"]]

        assert 200 < max(words) < 300

    def test_a_pool_too_small_for_a_long_prompt_is_no_failure(self, box: LocalBox, server: Server) -> None:
        """
        64 tokens hold no long prompt; what was asked for runs, so that is told, and no fault.
        """
        info = {"chunked_prefill_size": 512, "context_length": 32768, "max_total_num_tokens": 64}
        server.answers["/server_info"] = lambda _: (200, info)

        report = ask(box, server)

        assert report.answers
        assert check(report, "the same prefix again").passed is None
        assert "at most 64 tokens" in check(report, "a prompt longer than one prefill chunk").detail
        assert report.mtp_proven is False
        assert "/generate" not in server.asked
        assert "at most 64 tokens" in check(report, "speculates").detail

    def test_a_model_without_a_chat_template(self, box: LocalBox, server: Server) -> None:
        """
        A base model has none: it is asked for completions, and the report says so.
        """
        refusal = {"message": "Cannot use chat template functions because tokenizer.chat_template is not set"}
        server.answers["/v1/chat/completions"] = lambda _: (400, refusal)
        server.answers["/v1/completions"] = lambda body: (200, completion(len(body["prompt"].split())))

        report = ask(box, server)

        assert report.answers
        assert "no chat template" in check(report, "answers").detail
        assert 1 == len(server.asked["/v1/chat/completions"])

    def test_flags_that_run_otherwise_are_named(self, box: LocalBox, server: Server) -> None:
        """
        What the server tells of itself is held against what was asked; a difference is told, and no failure.
        """
        asked = ServerSpec(name="s", flags={"model_path": "/m", "port": server.port})
        report = Verifier(
            box, asked, unapplied=lambda _server, info: (f"of {len(info)} one differs",)
        ).report()

        assert report.answers
        assert (None, "of 4 one differs") == (
            check(report, "flags as asked").passed,
            check(report, "flags as asked").detail,
        )

    def test_requests_name_the_served_model(self, box: LocalBox, server: Server) -> None:
        """
        `served_model_name` goes before the path of the model.
        """
        ask(box, server, served_model_name="qwen")

        assert {"qwen"} == {body["model"] for body in server.asked["/v1/chat/completions"]}


class TestFailing:
    """
    Each question can fail by itself.
    """

    def test_an_error_to_the_first_request(self, box: LocalBox, server: Server) -> None:
        """
        A server that cannot answer one sentence is asked nothing harder.
        """
        server.answers["/v1/chat/completions"] = lambda _: (500, {"error": "Internal Server Error"})

        report = ask(box, server)

        assert not report.answers
        assert check(report, "answers").detail.startswith("HTTP 500: ")
        assert ["answers", "runs as asked", "flags as asked"] == [c.name for c in report.checks]
        assert 1 == len(server.asked["/v1/chat/completions"])
        assert report.mtp_proven is False

    @pytest.mark.parametrize(("status", "refused"), [(400, True), (404, True), (500, False)])
    def test_a_refusal_is_an_answer(
        self, box: LocalBox, server: Server, status: int, *, refused: bool
    ) -> None:
        """
        A server that says what it objects to is not deaf.
        """
        server.answers["/v1/chat/completions"] = lambda _: (status, {"message": "no"})

        (failed,) = ask(box, server).failed

        assert refused == failed.refused

    @pytest.mark.parametrize(
        ("name", "hit"),
        [
            ("a prompt longer than one prefill chunk", lambda text: "How many lines" in text),
            ("the same prefix again", lambda text: "Which word" in text),
            ("two at once", lambda text: "rivers" in text),
        ],
    )
    def test_one_kind_of_request(
        self, box: LocalBox, server: Server, name: str, hit: Callable[[str], bool]
    ) -> None:
        """
        A server that fails only at one kind of request is found out by that check alone.
        """
        plain = server.answers["/v1/chat/completions"]

        def some(body: Any) -> Answer:
            text = body["messages"][0]["content"]
            return (500, {"error": "died"}) if hit(text) else plain(body)

        server.answers["/v1/chat/completions"] = some

        report = ask(box, server)

        assert [name] == [c.name for c in report.checks if c.passed is False]
        assert not report.answers

    @pytest.mark.parametrize(
        "answer",
        [(200, completion(tokens=0)), (200, {}), (200, b"<html>welcome</html>"), (200, []), (200, b"")],
        ids=["no tokens", "no usage", "not JSON", "a list", "nothing"],
    )
    def test_an_answer_that_is_none(self, box: LocalBox, server: Server, answer: Answer) -> None:
        """
        Status 200 without a single token is no answer.
        """
        server.answers["/v1/chat/completions"] = lambda _: answer

        assert not ask(box, server).answers

    def test_nothing_listens(self, box: LocalBox, server: Server) -> None:
        """
        A port where nothing listens is an answer, not an exception.
        """
        server.stop()

        report = ask(box, server)

        assert not report.answers
        assert "nothing answers on port" in check(report, "answers").detail


class TestSpeculation:
    """
    The proof that MTP speculates.
    """

    @pytest.mark.parametrize(
        ("meta", "accept", "proven"),
        [
            ({"spec_accept_length": 1.0}, 1.0, False),
            ({"spec_accept_length": 1.02}, 1.02, False),
            ({"spec_accept_length": 1.7}, 1.7, True),
            ({"spec_verify_ct": 32, "completion_tokens": 97}, 3.0, True),
            ({"spec_verify_ct": 96, "completion_tokens": 96}, 1.0, False),
        ],
        ids=["nothing accepted", "as good as nothing", "told", "counted", "counted as nothing"],
    )
    def test_accept_length(
        self, box: LocalBox, server: Server, meta: dict[str, Any], accept: float, proven: bool
    ) -> None:
        """
        It counts with the bonus token: 1.00 means that no draft was ever accepted.
        """
        server.answers["/generate"] = lambda _: (200, generation(**meta))

        report = ask(box, server)

        assert (accept, proven) == (report.accept_length, report.mtp_proven)
        assert report.answers

    def test_the_average_where_the_request_tells_nothing(self, box: LocalBox, server: Server) -> None:
        """
        The server's average is second best.
        """
        server.answers["/generate"] = lambda _: (200, generation(weight_version="default"))
        server.answers["/server_info"] = lambda _: (
            200,
            {"internal_states": [{"avg_spec_accept_length": 2.2}]},
        )

        report = ask(box, server)

        assert (2.2, True) == (report.accept_length, report.mtp_proven)
        assert check(report, "speculates").detail.startswith(
            "accept length 2.20 of at most 4 (the server's av"
        )

    def test_no_accept_length_is_no_proof(self, box: LocalBox, server: Server) -> None:
        """
        A server that tells none answers, and speculation stays unproven.
        """
        server.answers["/generate"] = lambda _: (404, {"detail": "Not Found"})

        report = ask(box, server)

        assert report.answers
        assert report.mtp_proven is False
        assert report.accept_length is None
        assert "Not Found" in check(report, "speculates").detail

    def test_not_asked_to_speculate(self, box: LocalBox, server: Server) -> None:
        """
        Without MTP there is nothing to prove.
        """
        report = ask(box, server, speculative_algorithm=None)

        assert report.mtp_proven is None
        assert check(report, "speculates").passed is None
        assert report.speculation is not None
        assert (Proof.NOT_ASKED, "") == (report.speculation.proof, report.speculation.because)
        assert {1, 4} == {speed.at_once for speed in report.speculation.speeds}


class TestAsAsked:
    def test_fewer_requests_than_asked_are_told(self, box: LocalBox, server: Server) -> None:
        """
        A server that quietly runs fewer requests at a time is no failure, but said.
        """
        report = ask(box, server, max_running_requests=512)

        assert report.answers
        assert (None, "16 requests run at a time, 512 were asked for") == (
            check(report, "runs as asked").passed,
            check(report, "runs as asked").detail,
        )

    def test_older_versions_have_another_path(self, box: LocalBox, server: Server) -> None:
        """
        /get_server_info is asked where /server_info is not known.
        """
        server.answers["/get_server_info"] = server.answers.pop("/server_info")

        assert 16 == ask(box, server).figures["max_running_requests"]

    def test_a_server_that_tells_nothing(self, box: LocalBox, server: Server) -> None:
        """
        Without any information the proof goes on with what SGLang does by default.
        """
        server.answers.pop("/server_info")

        report = ask(box, server)

        assert (True, True) == (report.answers, report.mtp_proven)
        assert "the server does not tell" == check(report, "runs as asked").detail
