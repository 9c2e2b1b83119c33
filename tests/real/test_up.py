"""
The main job on the real SGLang, without a GPU: up, status, logs, attach, verify, a second server, down.
"""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.sshd import free_port
from tests.real.place import PATIENCE, Box, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(3 * PATIENCE)]


@pytest.fixture
def serving(box: Box) -> Box:
    """
    A box on which `chain` serves, left alone where an earlier test brought it up.
    """
    box.write_hosts()
    if "--model-path" not in " ".join(box.family().values()) or not box.listens(box.port):
        box.clear()
        done = box.run("up", "chain")
        assert 0 == done.status, done.err
    return box


def generate(port: int, text: str, tokens: int) -> str:
    """
    What the server makes of a text.
    """
    body = {"text": text, "sampling_params": {"max_new_tokens": tokens, "temperature": 0}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return str(json.load(reply)["text"])


def test_drafts_that_are_accepted(fresh: Box) -> None:
    """
    A draft that computes what the model computes: NEXTN is proved at the most that three steps allow; and
    down leaves no process, no port and no shared memory.
    """
    up = fresh.run("up", "chain", "--json")
    text = generate(fresh.port, " river", 12)
    shared = fresh.shared_memory()
    down = fresh.run("down")

    document = up.document
    assert (0, 0) == (up.status, down.status), up.err
    assert "not planned: " in up.err
    assert [1] == [attempt["attempt"] for attempt in document["attempts"]]
    assert all(check["passed"] for check in document["report"]["checks"])
    assert "speculating" == document["report"]["speculation"]["proof"]
    assert document["accept_length"] > 3.5
    assert text.startswith(" stone light winter")
    assert fresh.is_empty()
    assert not [path for path in shared if path.exists()]


def test_drafts_that_are_not(fresh: Box) -> None:
    """
    Random weights: the same flags are up, and nothing is accepted. That is exit status 8.
    """
    up = fresh.run("up", "hybrid", "--json")
    fresh.run("down")

    proof = up.document["report"]["speculation"]
    assert 8 == up.status
    assert up.document["ready"]
    assert not up.document["mtp_proven"]
    assert proof["proof"] in ("not speculating", "answering nonsense")
    assert proof["accept_length"] <= 1.1
    assert fresh.is_empty()


def test_a_client_that_is_killed(fresh: Box) -> None:
    """
    Killed while the scheduler loads: `attach` follows the same attempt to READY, and the log is kept whole.
    """
    going = fresh.start("up", "dense").until("arguments resolved", PATIENCE)
    going.send(signal.SIGKILL).done()
    pid = fresh.pid("main")

    attached = fresh.run("attach", "--json")
    log = Path(attached.document["attempts"][0]["log"]).read_bytes().decode()
    shown = fresh.run("logs", "--local")
    down = fresh.run("down")

    assert (0, 0) == (attached.status, down.status), attached.err
    assert 1 == len(attached.document["attempts"])
    assert f"Started server process [{pid}]" in log
    assert "ready to roll" in shown.out
    assert log.startswith(shown.out)
    assert fresh.is_empty()


class TestServing:
    def test_up_again_restarts_nothing(self, serving: Box) -> None:
        """
        What serves already in the same configuration is proved once more.
        """
        before = serving.pid("main")

        up = serving.run("up", "chain", "--json")

        assert 0 == up.status
        assert "nothing is restarted" in up.err
        assert before == serving.pid("main")

    def test_status(self, serving: Box) -> None:
        """
        The server with its port and its accept length.
        """
        document = serving.run("status", "--json").document

        [mine] = document["runs"]
        assert ("chain", "ready", serving.port) == (mine["server"], mine["state"], mine["port"])
        assert mine["accept_length"] > 3.5

    def test_verify(self, serving: Box) -> None:
        """
        Longer requests, each kind alone and all at once.
        """
        verify = serving.run("verify", "--json")

        assert 0 == verify.status, verify.err
        kinds = verify.document["speculation"]["generations"]
        assert [1, 1, 1, 1, 4, 4, 4, 4] == [reply["at_once"] for reply in kinds]
        assert all(reply["tokens"] == 256 and reply["accept_length"] > 3.5 for reply in kinds)

    def test_logs(self, serving: Box) -> None:
        """
        Byte for byte, and `-f` shows what a request makes the server say, until it is interrupted.
        """
        [log] = (serving.sshd.home / ".mtpdeploy" / "runs").glob("*/*attempt*.log")
        shown = serving.run("logs")
        going = serving.start("logs", "-f").until("")
        until(lambda: bool(going.out), "the beginning of the log")
        before = log.read_text().count("POST /generate")
        generate(serving.port, " river", 4)
        until(lambda: going.out.count("POST /generate") > before, "a new line")

        assert log.read_bytes().decode().startswith(shown.out)
        assert 0 == going.send(signal.SIGINT).done().status

    def test_another_beside_it(self, serving: Box) -> None:
        """
        A second server on another port, speculating from n-grams, which the first does not notice.
        """
        port = free_port()
        first = serving.pid("main")

        up = serving.run("up", "ngram", "--port", str(port), "--json")
        both = serving.run("status", "--json").document["runs"]
        down = serving.run("down", "ngram")

        assert (0, 0) == (up.status, down.status), up.err
        assert up.document["accept_length"] > 1.1
        assert {("chain", serving.port), ("ngram", port)} == {(run["server"], run["port"]) for run in both}
        assert not serving.listens(port)
        assert first == serving.pid("main")
        assert generate(serving.port, " river", 4).startswith(" stone")


@pytest.fixture
def stale(fresh: Box) -> Iterator[subprocess.Popen[bytes]]:
    """
    A real server on the box's port that nobody's tool started.
    """
    words = ["--model-path", str(fresh.installed.models / "dense"), "--port", str(fresh.port)]
    sizes = ["--max-total-tokens", "8192", "--max-running-requests", "4", "--chunked-prefill-size", "512"]
    process = fresh.by_hand(*words, *sizes)
    until(fresh.answers, "a server by hand")
    yield process
    process.kill()
    process.wait()


def test_a_stale_server_on_the_port(fresh: Box, stale: subprocess.Popen[bytes]) -> None:
    """
    `--keep-others` names it and launches nothing; without it the old one is ended, and the new one proved.
    """
    kept = fresh.run("up", "dense", "--keep-others")
    alive = stale.poll() is None
    up = fresh.run("up", "dense", "--json")
    ended = stale.poll() is not None
    down = fresh.run("down")

    assert (4, 0, 0) == (kept.status, up.status, down.status), kept.err + up.err
    assert (True, True) == (alive, ended)
    assert str(stale.pid) in kept.err
    assert fresh.is_empty()
