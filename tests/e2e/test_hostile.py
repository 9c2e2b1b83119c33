"""
Every way in which a box or a server can misbehave, once, over a real OpenSSH server.
"""

import contextlib
import json
import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from mtpdeploy.cli import opening
from mtpdeploy.core import roster
from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.demo.home import Hostile
from mtpdeploy.deploy import watch
from mtpdeploy.engines.sglang import SGLANG
from mtpdeploy.remote import retry
from tests.deploy.test_up import chat
from tests.e2e.client import Client, Done, Here, census, none_left, remains, until
from tests.e2e.rented import Rented

Rent = Callable[..., Rented]
RunHere = Callable[[Client], Here]


def up(rent: Rent, here: RunHere, *words: str, **hostile: Any) -> tuple[Rented, Done]:
    """
    Bring the fitting server up on a box that misbehaves.
    """
    rented = rent(hostile=Hostile(**hostile))
    return rented, here(rented.client).run("up", "fits", "--on", "box", "--json", *words)


def causes(done: Done) -> list[str | None]:
    """
    Why each attempt ended.
    """
    return [attempt["cause"] for attempt in done.document["attempts"]]


def hurry(monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
    """
    Give every stage so many seconds, and have heartbeats come more often than that.
    """
    engine = structs.replace(SGLANG, patience=dict.fromkeys(Stage, patience))
    monkeypatch.setattr(opening, "SGLANG", engine)
    monkeypatch.setattr(retry, "HEARTBEAT", 0.2)


class TestServers:
    """
    A server that fails.
    """

    @pytest.mark.parametrize(
        ("hostile", "expected"),
        [
            ({"die_at": "weights"}, ["vanished", "vanished", "vanished"]),
            ({"warmup_error": True}, ["warmup-failed"]),
            ({"kernel_mismatch": True}, ["kernel-mismatch"]),
            ({"killed_at": "pools"}, ["host-oom-killed"]),
        ],
        ids=["dies without a line", "warm-up error", "kernel package too old", "scheduler killed"],
    )
    def test_does_not_come_up(
        self, rent: Rent, here: RunHere, hostile: dict[str, Any], expected: list[str]
    ) -> None:
        """
        Exit status 1, the cause of each attempt, and nothing left on the box.
        """
        rented, done = up(rent, here, **hostile)

        assert (1, expected) == (done.status, causes(done))
        assert all(attempt["remedy"] for attempt in done.document["attempts"])
        assert "did not come up on `box`" in done.errors[-1]
        assert none_left(rented.home)

    @pytest.mark.parametrize(
        ("hostile", "cause", "said"),
        [
            ({"oom_kill_at": "graphs"}, "host-oom-killed", "`oom_kill 1` (+1 since the launch), limit "),
            ({"xid_at": "graphs"}, "gpu-fault", "the driver reported Xid 79 on 0000:01:00"),
        ],
        ids=["killed for memory", "a fault of the GPU"],
    )
    def test_the_box_knows_why(
        self, rent: Rent, here: RunHere, hostile: dict[str, Any], cause: str, said: str
    ) -> None:
        """
        What the kernel says decides: on the screen, in the document, in the history.
        """
        rented, done = up(rent, here, "--max-attempts", "1", **hostile)
        (attempt,) = done.document["attempts"]
        (past,) = here(rented.client).run("history", "--json").document

        assert (1, cause) == (done.status, attempt["cause"])
        assert said in attempt["because"]
        assert said in done.err
        assert attempt["because"] in attempt["after"].values()
        assert [attempt] == past["attempts"]
        later = here(rented.client).run("diagnose", "--on", "box", "--json")
        assert (1, cause, attempt["because"]) == (
            later.status,
            later.document["cause"],
            later.document["verdict"]["because"],
        )
        assert none_left(rented.home)

    def test_hangs(self, rent: Rent, here: RunHere, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A server without any sign of progress for its stage's patience is ended; its stage is told.
        """
        hurry(monkeypatch, 1.5)

        rented, done = up(rent, here, "--max-attempts", "1", hang_at="graphs")

        assert (1, ["stalled"]) == (done.status, causes(done))
        assert "memory pools ready" == done.document["attempts"][0]["stage"]
        assert "and no other sign of work" in done.err
        assert "sglang::scheduler stood: main thread state S" in done.err
        assert none_left(rented.home)

    def test_hangs_where_py_spy_is(self, rent: Rent, here: RunHere, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The frames of its processes are kept on the box and here, and the innermost are the verdict's.
        """
        hurry(monkeypatch, 1.5)
        rented = rent(hostile=Hostile(hang_at="graphs"))
        program = rented.home.bin / "py-spy"
        program.write_text(
            "#!/bin/sh\necho 'Thread 1 (idle): \"MainThread\"'\necho '    wait (sglang/srt/x.py:12)'\n"
        )
        program.chmod(0o755)

        done = here(rented.client).run("up", "fits", "--on", "box", "--json", "--max-attempts", "1")
        kept = [*rented.home.path.glob(".mtpdeploy/runs/*/stacks.txt")]
        copies = [*rented.client.state.glob("ascents/*/*/stacks.txt")]

        assert "sglang::scheduler stood in wait (x.py:12); main process stood in wait (x.py:12)" in done.err
        assert 1 == len(kept) == len(copies)
        assert kept[0].read_text() == copies[0].read_text()

    def test_spins(self, rent: Rent, here: RunHere, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        One that burns CPU and shows nothing else is believed for twice its stage's patience, and no longer.
        """
        hurry(monkeypatch, 1.5)

        rented, done = up(rent, here, "--max-attempts", "1", spin_at="graphs")

        assert (1, ["stalled"]) == (done.status, causes(done))
        assert "nothing but CPU time or a busy GPU, which a deadlock shows as well" in done.err
        assert none_left(rented.home)

    def test_hangs_while_its_health_is_asked(
        self, rent: Rent, here: RunHere, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        A server that listens and never gets ready stalls, though it answers every question with a line.
        """
        hurry(monkeypatch, 2.0)
        monkeypatch.setattr(watch, "HEALTH_AFTER", 0.2)
        monkeypatch.setattr(watch, "HEALTH_LONGEST", 0.4)

        rented, done = up(rent, here, "--max-attempts", "1", hang_at="warmup")

        assert (1, ["stalled"]) == (done.status, causes(done))
        assert done.err.count('"GET /health HTTP/1.1" 503') > 2
        assert none_left(rented.home)

    @pytest.mark.parametrize("how", ["compile_at", "download_at", "pin_at"])
    def test_is_slow(self, rent: Rent, here: RunHere, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        """
        Compilers, a growing file and filling memory outlast a stage's patience: slow is not dead.
        """
        hurry(monkeypatch, 2.5)
        monkeypatch.setattr(watch, "QUIET", 2.0)

        _, done = up(rent, here, "--max-attempts", "1", slow_s=6.0, **{how: "graphs"})
        shown = {"compile_at": "compilers running (cicc", "download_at": "written", "pin_at": "more memory"}

        assert (0, [None]) == (done.status, causes(done))
        assert shown[how] in next(line for line in done.err.splitlines() if line.startswith("no line for"))

    @pytest.mark.parametrize("stage", ["init", "weights", "graphs", "ready"])
    def test_scheduler_dies_unnoticed(
        self, rent: Rent, here: RunHere, monkeypatch: pytest.MonkeyPatch, stage: str
    ) -> None:
        """
        A main process that lives on without its scheduler is not ready, nor is it waited for.
        """
        monkeypatch.setattr(retry, "HEARTBEAT", 0.2)
        monkeypatch.setattr(roster, "LOST_GRACE", 1.0)
        rented = rent(hostile=Hostile(scheduler_dies_at=stage), speed=400.0)

        done = here(rented.client).run("up", "fits", "--on", "box", "--json", "--max-attempts", "1")

        assert (1, ["scheduler-died"]) == (done.status, causes(done))
        assert "is gone, and the main process lives on" in done.err
        assert none_left(rented.home)

    def test_hangs_at_the_first_request(self, rent: Rent, here: RunHere) -> None:
        """
        The watchdog's bark under the warm-up is the cause, not the death that follows it.
        """
        _, done = up(rent, here, "--max-attempts", "1", watchdog="warmup")

        assert (1, ["watchdog"]) == (done.status, causes(done))

    def test_dies_just_after_ready(self, rent: Rent, here: RunHere) -> None:
        """
        A scheduler that dies as soon as it is ready is found out by the proof, or by whoever comes next.
        """
        rented, done = up(rent, here, "--max-attempts", "1", dies_ready_s=0.02)
        until(lambda: not census(rented.home), "the end of the server")
        status = here(rented.client).run("status", "--on", "box", "--json")

        assert done.status in (0, 1)
        assert [] == status.document["runs"]
        attached = here(rented.client).run("attach", "--on", "box")
        assert attached.status != 0
        assert none_left(rented.home)

    def test_speculates_in_vain(self, rent: Rent, here: RunHere) -> None:
        """
        Up, but no draft is ever accepted: exit status 8, and the server goes on.
        """
        rented, done = up(rent, here, accept_nothing=True)

        assert 8 == done.status
        assert (True, False, 1.0) == tuple(
            done.document[key] for key in ("ready", "mtp_proven", "accept_length")
        )
        assert "FAILED speculates: accept length 1.00" in done.err
        assert "ready, MTP not proven" in done.err
        assert chat(rented.port)

    def test_accepts_hardly_anything(self, rent: Rent, here: RunHere) -> None:
        """
        An accept length of 1.2 is speculation that costs more than it saves: proven, and said loudly.
        """
        _, done = up(rent, here, accept_length=1.2)
        proof = done.document["report"]["speculation"]

        assert (0, True) == (done.status, done.document["mtp_proven"])
        assert "speculating, but not worth it" == proof["proof"]
        assert 1.1 < proof["accept_length"] < 1.4
        assert "proof     SPECULATING, BUT NOT WORTH IT: accept length 1." in done.err

    @pytest.mark.parametrize(
        ("hostile", "why"),
        [
            ({"nonsense": True}, "nothing but `!`"),
            ({"empty_answers": True}, "without a visible character"),
        ],
        ids=["exclamation marks", "no text"],
    )
    def test_answers_nonsense(self, rent: Rent, here: RunHere, hostile: dict[str, Any], why: str) -> None:
        """
        Up, speculating, and of no use: exit status 1, and the server goes on for whoever looks into it.
        """
        rented, done = up(rent, here, **hostile)

        assert (1, True, True) == (done.status, done.document["ready"], done.document["mtp_proven"])
        assert "answering nonsense" == done.document["report"]["speculation"]["proof"]
        assert "proof     ANSWERING NONSENSE: prose: " in done.err
        assert why in done.err
        assert census(rented.home)

    def test_a_checkpoint_without_tensors_for_the_draft(self, rent: Rent, here: RunHere) -> None:
        """
        Exit status 8, with the reason that the box's own files tell.
        """
        rented = rent()
        model = rented.home.model("Qwen3.6-27B-without-mtp")
        words = ("up", "fits", "--on", "box", "--json", "--set", f"model_path={model}")
        refused = here(rented.client).run(*words)
        done = here(rented.client).run(*words, "--allow-no-mtp")

        assert 4 == refused.status
        assert "has no tensors for multi-token prediction" in refused.document["error"]
        assert (8, 1.0) == (done.status, done.document["accept_length"])
        assert "proof     NOT SPECULATING: the checkpoint has no tensors for the draft" in done.err
        proof = done.document["report"]["speculation"]
        assert "not speculating" == proof["proof"]
        assert "take a checkpoint that has them" in proof["remedy"]

    def test_speaks_noise(self, rent: Rent, here: RunHere) -> None:
        """
        No byte of a log that a terminal would obey reaches the screen, and the server comes up.
        """
        _, done = up(rent, here, noise=True)

        assert 0 == done.status
        assert "\x1b" not in done.err
        assert "\x07" not in done.err
        assert max(map(len, done.err.splitlines())) < 2100


class TestBoxes:
    """
    Something else is in the way.
    """

    @pytest.mark.parametrize("kind", ["silent", "http"])
    def test_port_of_a_stranger(self, rent: Rent, here: RunHere, kind: str) -> None:
        """
        A port that somebody else keeps is an error before any launch, and the stranger is left alone.
        """
        rented = rent()
        rented.home.start_stranger("listen", kind, str(rented.port))
        until(lambda: census(rented.home) == ["stranger listen"] and _listens(rented.port))

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert 4 == done.status
        assert 1 == len(done.errors)
        assert f"listens on port {rented.port}" in done.errors[0]
        assert "`--port`" in done.err
        assert remains(rented.home, ["stranger listen"])
        assert "launched" not in done.err

    def test_memory_of_a_stranger(self, rent: Rent, here: RunHere) -> None:
        """
        Somebody else's memory on the wanted GPU is named, and neither touched nor shared.
        """
        rented = rent(hostile=Hostile(foreign_gib=20.0))
        until(lambda: census(rented.home) == ["stranger memory"])

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert 4 == done.status
        assert "holds 20.00 GiB of GPU 0" in done.errors[0]
        assert remains(rented.home, ["stranger memory"])

    def test_stale_server(self, rent: Rent, here: RunHere) -> None:
        """
        An older server of the same user on the port is listed and ended; then there is room.
        """
        rented = _with_stale(rent)
        old = {pid for pid, _, _ in rented.home.living()}

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert 0 == done.status
        assert "in the way: pid" in done.err
        assert f"listens on port {rented.port}" in done.err
        assert not old & {pid for pid, _, _ in rented.home.living()}

    def test_stale_server_is_kept_when_told_so(self, rent: Rent, here: RunHere) -> None:
        """
        With `--keep-others` it is in the way, and stays.
        """
        rented = _with_stale(rent)
        before = census(rented.home)

        done = here(rented.client).run("up", "fits", "--on", "box", "--keep-others")

        assert 4 == done.status
        assert f"listens on port {rented.port}" in done.errors[0]
        assert remains(rented.home, before)

    def test_busy_server_is_only_taken(self, rent: Rent, here: RunHere) -> None:
        """
        One that works on a request is ended by `--take`, and by nothing less.
        """
        rented = _with_stale(rent, speed=40.0)
        rented.home.change(speed=5000.0)
        threading.Thread(target=_work, args=(rented.port,), daemon=True).start()
        until(lambda: _running(rented) == 1, "the request")

        refused = here(rented.client).run("up", "fits", "--on", "box")
        still = _running(rented)
        taken = here(rented.client).run("up", "fits", "--on", "box", "--take")

        assert 4 == refused.status
        assert "is working on requests" in refused.errors[0]
        assert "`--take`" in refused.err
        assert 1 == still
        assert 0 == taken.status

    def test_memory_that_comes_back_late(self, rent: Rent, here: RunHere) -> None:
        """
        What the last attempt leaves behind is waited for, so that no attempt fails for it.
        """
        rented = rent(hostile=Hostile(free_late_s=1.0))

        done = here(rented.client).run("up", "second", "--on", "box", "--no-plan", "--json")

        assert (0, ["oom-kv-pool", None]) == (done.status, causes(done))

    @pytest.mark.parametrize(
        ("kind", "error"),
        [
            ("missing", "error: `box` has no GPU that can be seen: there is no nvidia-smi"),
            ("no-gpu", "error: nvidia-smi shows no GPU on `box`"),
        ],
    )
    def test_no_gpu(self, rent: Rent, here: RunHere, kind: str, error: str) -> None:
        """
        A box without a GPU is refused before any launch.
        """
        rented = rent(hostile=Hostile(nvidia_smi=kind))

        done = here(rented.client).run("up", "fits", "--on", "box")

        assert (4, [error]) == (done.status, done.errors)
        assert none_left(rented.home)


def _with_stale(rent: Rent, **options: Any) -> Rented:
    rented = rent(**options)
    flags = ("--attention-backend", "triton", "--mem-fraction-static", "0.7", "--max-running-requests", "4")
    log = rented.home.path / "stale.log"
    rented.home.start_server(
        *flags, "--port", str(rented.port), "--model-path", str(rented.home.model()), log=log
    )
    until(lambda: b"ready to roll" in log.read_bytes(), "the old server")
    return rented


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _work(port: int) -> None:
    body = {"text": "count", "sampling_params": {"max_new_tokens": 2200, "ignore_eos": True}}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode())
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def _running(rented: Rented) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{rented.port}/get_load", timeout=20) as answer:
        loads = json.load(answer)
    return sum(load["num_reqs"] for load in loads)
