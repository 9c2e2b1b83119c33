"""
How the real SGLang dies, provoked: each death gets its verdict, and nothing of it is left.
"""

import os
import signal
import socket
from typing import Any

import pytest

from tests.e2e.client import Done, Going
from tests.real.place import GATED_DELTA_NET, NEXTN, PATIENCE, Box, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(3 * PATIENCE)]

ONCE = ("--no-plan", "--max-attempts", "1", "--json")

BY_ARGUMENTS: dict[str, tuple[dict[str, Any], tuple[str, ...], int]] = {
    "x10 an architecture nobody knows": (
        {"config": {"architectures": ["NoSuchForCausalLM"]}},
        ("model-unsupported", "arguments resolved", "NoSuchForCausalLM"),
        137,
    ),
    "x12 a context longer than the model's": (
        {"context_length": 100_000},
        ("context-too-long", "launched", "derived context_length (4096)"),
        1,
    ),
    "x16 a quantisation that the checkpoint has not": (
        {"quantization": "awq"},
        ("bad-argument", "loading weights", "awq"),
        137,
    ),
    "x17 no tokenizer there": (
        {"tokenizer_path": "/nonexistent/tokenizer"},
        ("model-not-found", "arguments resolved", "/nonexistent/tokenizer"),
        1,
    ),
    "x20 a JSON that is none": (
        {"json_model_override_args": "{bad"},
        ("python-exception", "launched", "JSONDecodeError"),
        1,
    ),
    "x24 two ranks on a machine that is not told how to divide itself": (
        {"tp_size": 2},
        ("scheduler-exception", "arguments resolved", "SGLANG_CPU_OMP_THREADS_BIND"),
        137,
    ),
    "f02 snapshots of a state that this platform does not take": (
        {"model": "hybrid"},
        ("extra-buffer-unsupported", "launched", "extra_buffer requires platform support"),
        1,
    ),
    "f07 a kernel that is missing, found by the warm-up with the port open": (
        {"attention_backend": "triton"},
        ("scheduler-exception", "listening", "GPU kernel create_flashinfer_kv_indices_triton called on CPU"),
        137,
    ),
    "f09 drafts on an attention backend that has none": (
        {"model": "hybrid", **GATED_DELTA_NET, **NEXTN, "env": {"SGLANG_PLUGINS": "none"}},
        ("attention-backend", "memory pools ready", "EAGLE is not supported in decode attention backend"),
        137,
    ),
}
"""
A server's flags (`config`: changes of its config.json), then cause, stage and proof of its one attempt,
and the server's exit status.
"""


@pytest.mark.parametrize("name", BY_ARGUMENTS)
def test_by_what_was_asked(fresh: Box, name: str) -> None:
    """
    The cause, the line that proves it, and SGLang's own exit status, unless it was ended before its end.
    """
    flags, (cause, stage, proof), status = BY_ARGUMENTS[name]
    changed = {key: value for key, value in flags.items() if key != "config"}
    if "config" in flags:
        changed["model_path"] = str(fresh.spoil("dense", **flags["config"]))
    fresh.write_hosts(doomed=changed)

    attempt = only(fresh.run("up", "doomed", *ONCE))

    assert (cause, stage) == (attempt["cause"], attempt["stage"])
    assert attempt["exit_status"] == (None if attempt["end"] == "doomed" else status)
    assert proof in attempt["proof"]
    assert attempt["remedy"]
    assert fresh.is_empty()


def test_refused_before_anything_is_launched(fresh: Box) -> None:
    """
    What SGLang would refuse after seconds of imports never gets that far.
    """
    fresh.write_hosts(
        nowhere={"model_path": "/nonexistent/model"},
        drafts={"model_path": str(fresh.spoil("dense", mtp_num_hidden_layers=1)), **NEXTN},
        gpu={"device": None},
    )

    told = {name: fresh.run("up", name) for name in ("nowhere", "drafts", "gpu")}
    chosen = fresh.run("up", "dense", "--set", "attention_backend=bogus")

    assert {"nowhere": 4, "drafts": 4, "gpu": 4} == {name: done.status for name, done in told.items()}
    assert 2 == chosen.status
    assert "bogus" in chosen.err
    assert "no folder /nonexistent/model" in told["nowhere"].err
    assert "no nvidia-smi" in told["gpu"].err
    assert not list((fresh.sshd.home / ".mtpdeploy").glob("runs/*"))


def only(done: Done) -> dict[str, Any]:
    """
    The one attempt of an ascent that failed.
    """
    assert 1 == done.status, done.err
    [attempt] = done.document["attempts"]
    assert isinstance(attempt, dict)
    return attempt


def starting(box: Box, said: str, *words: str) -> Going:
    """
    `up dense`, as far as it has said something.
    """
    return box.start("up", "dense", *ONCE, *words).until(said, PATIENCE)


def workers(box: Box) -> None:
    """
    Wait until the main process has begun its children.
    """
    until(lambda: len(box.family()) >= 4, "children of the main process")


class TestKilledWhileItStarts:
    def test_main(self, fresh: Box) -> None:
        """
        KILL of the main process leaves its children importing: a death without a word, and they are ended.
        """
        going = starting(fresh, "launched in")
        workers(fresh)
        fresh.kill("main")

        attempt = only(going.done(PATIENCE))

        assert ("vanished", 137) == (attempt["cause"], attempt["exit_status"])
        assert fresh.is_empty()

    def test_scheduler(self, fresh: Box) -> None:
        """
        The main process reports it and ends; as the kernel killed nothing for memory, somebody else did.
        """
        going = starting(fresh, "launched in")
        until(lambda: fresh.has("scheduler"), "a scheduler")
        fresh.kill("scheduler")

        attempt = only(going.done(PATIENCE))

        assert ("vanished", 1) == (attempt["cause"], attempt["exit_status"])
        assert "exit code: -9" in attempt["proof"]
        assert fresh.is_empty()

    def test_told_to_stop(self, fresh: Box) -> None:
        """
        TERM from outside, while the children import: not a failure that calls for another rung.
        """
        going = starting(fresh, "launched in")
        workers(fresh)
        fresh.kill("main", signal.SIGTERM)

        attempt = only(going.done(PATIENCE))

        assert ("stopped", 143) == (attempt["cause"], attempt["exit_status"])
        assert fresh.is_empty()


class TestKilledWhenReady:
    def test_detokenizer(self, fresh: Box) -> None:
        """
        Killed under the proof: the main process lives on and answers nobody, so that it is ended.
        """
        going = starting(fresh, "  0:")
        until(lambda: "listening" in going.err, "a listener")
        fresh.kill("detokenizer")

        attempt = only(going.done(PATIENCE))

        assert "detokenizer-died" == attempt["cause"]
        assert "detokenizer" in attempt["proof"] + attempt["because"]
        assert fresh.is_empty()

    def test_scheduler(self, fresh: Box) -> None:
        """
        Killed after `up` has left: status does not call it ready, and `up` starts another.
        """
        up = fresh.run("up", "dense")
        before = fresh.pid("main")
        fresh.kill("scheduler")
        until(lambda: not fresh.has("scheduler"), "the scheduler's end")
        status = fresh.run("status", "--json")
        again = fresh.run("up", "dense", "--json")
        after = fresh.pid("main")
        fresh.run("down")

        assert (0, 0) == (up.status, again.status), again.err
        assert not [run for run in status.document["runs"] if run["state"] == "ready"]
        assert before != after
        assert fresh.is_empty()


class TestStuckInWarmUp:
    def test_down_ends_what_does_not_obey(self, fresh: Box) -> None:
        """
        A scheduler that stands still under the warm-up request: TERM alone never ends that server.
        """
        going = starting(fresh, "  0:")
        until(lambda: "listening" in going.err, "a listener")
        fresh.kill("scheduler", signal.SIGSTOP)

        going.send(signal.SIGINT).done(PATIENCE)
        alive = fresh.has("scheduler")
        down = fresh.run("down")

        assert (True, 0) == (alive, down.status)
        assert fresh.is_empty()

    def test_the_warm_up_gives_up(self, fresh: Box) -> None:
        """
        SGLang gives it up by itself; that is the cause, and no out of memory.
        """
        fresh.write_hosts(dense={"env": {"SGLANG_WARMUP_TIMEOUT": "20"}})
        going = starting(fresh, "  0:")
        until(lambda: "listening" in going.err, "a listener")
        fresh.kill("scheduler", signal.SIGSTOP)

        attempt = only(going.done(PATIENCE))

        assert "warmup-failed" == attempt["cause"]
        assert fresh.is_empty()


class TestPort:
    def test_held_by_a_stranger(self, fresh: Box) -> None:
        """
        A listener that is no SGLang is named, and nothing is launched.
        """
        with socket.create_server(("127.0.0.1", fresh.port)):
            up = fresh.run("up", "dense")

        assert 4 == up.status
        assert f"pid {os.getpid()}" in up.err
        assert not list((fresh.sshd.home / ".mtpdeploy").glob("runs/*"))

    def test_taken_while_it_loads(self, fresh: Box) -> None:
        """
        SGLang finds out when all is loaded: the cause is the port, whatever the exit status.
        """
        going = starting(fresh, "launched in")
        workers(fresh)
        with socket.create_server(("127.0.0.1", fresh.port)):
            attempt = only(going.done(PATIENCE))

        assert "port-taken" == attempt["cause"]
        assert fresh.is_empty()
