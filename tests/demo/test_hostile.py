"""Each way in which the box can be told to misbehave, seen from outside."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.demo.home import STAGES, DemoHome, Hostile, stages_of
from tests.demo.conftest import MakeHome, Started
from tests.demo.test_processes import GPU_QUERY, TRITON, eventually, pid_of, roles, smi

MTP = ("--speculative-algorithm", "NEXTN", "--max-running-requests", "4")


def used_mib(home: DemoHome) -> int:
    """What nvidia-smi calls used."""
    return int(smi(home, GPU_QUERY, "--format=csv,noheader,nounits").split(", ")[4])


@pytest.mark.parametrize("stage", [*STAGES[::2], "ready"])
def test_dies_without_a_line(make: MakeHome, port: int, stage: str) -> None:
    """SIGKILL of the whole family at a stage: 137, no word about it, nothing left."""
    home = make(hostile=Hostile(die_at=stage))
    server = Started(home, port, *TRITON, *MTP)

    assert 137 == server.wait()
    assert eventually(lambda: not roles(home))
    assert "exception" not in server.log
    assert "Received sigquit" not in server.log
    assert "SIGQUIT received" not in server.log


@pytest.mark.parametrize("ignoring", [False, True])
def test_hangs(make: MakeHome, port: int, ignoring: bool) -> None:  # a parameter of the test
    """It hangs where told; SIGTERM ends it (143), unless it ignores that as well: then only SIGKILL does."""
    home = make(hostile=Hostile(hang_at="graphs", ignore_term=ignoring))
    server = Started(home, port, *TRITON)
    server.until("Memory pool end")
    os.kill(server.process.pid, signal.SIGTERM)
    if ignoring:
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.3)
        os.kill(server.process.pid, signal.SIGKILL)

    assert (137 if ignoring else 143) == server.wait()
    assert eventually(lambda: not roles(home))
    assert "Capture cuda graph begin" not in server.log


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.5.9", "Rank 0 scheduler is dead. Please check if there are relevant logs."),
        ("0.5.12", "Rank 0 scheduler died during initialization (exit code: -9)"),
    ],
)
def test_kernel_kills_the_scheduler(make: MakeHome, port: int, version: str, text: str) -> None:
    """The main process is left with exit code -9 and ends with status 1 (19)."""
    home = make(sglang_version=version, hostile=Hostile(killed_at="pools"))
    server = Started(home, port, *TRITON)

    assert 1 == server.wait()
    assert text in server.log
    assert eventually(lambda: not roles(home))


@pytest.mark.parametrize("stage", stages_of("killed_at"))
def test_kernel_kills_the_scheduler_at_every_stage(make: MakeHome, port: int, stage: str) -> None:
    """Whichever process comes to the stage: the scheduler is gone, and counted as killed for memory."""
    home = make(sglang_version="0.5.12", hostile=Hostile(killed_at=stage))
    server = Started(home, port, *TRITON)

    assert server.wait() in (1, 137)
    assert "exit code: -9" in server.log or "crashed with exit code -9" in server.log
    assert "oom_kill 1\n" in (home.path / "kernel" / "cgroup" / "memory.events").read_text()
    assert eventually(lambda: not roles(home))


@pytest.mark.parametrize("switch", ["killed_at", "scheduler_dies_at"])
def test_a_stage_before_there_is_a_scheduler_is_refused(make: MakeHome, switch: str) -> None:
    """What could do nothing there is an error when the home is made."""
    placed: dict[str, Any] = {switch: "arguments"}

    with pytest.raises(ValueError, match="no such stage: arguments"):
        make(hostile=Hostile(**placed))


def test_container_limit_kills_while_host_memory_is_pinned(make: MakeHome, port: int) -> None:
    """Before 0.5.19 SGLang sees the host's memory, not the container's: no text, exit code -9."""
    flags = (*TRITON, "--mamba-scheduler-strategy", "extra_buffer", "--enable-hierarchical-cache")
    server = Started(make(sglang_version="0.5.12", cgroup_gb=40.0), port, *flags, "--hicache-size", "100")

    assert 1 == server.wait()
    assert "Allocating 100.00 GB host memory for hierarchical KV cache." in server.log
    assert "exit code: -9" in server.log


def test_first_starts_only(make: MakeHome, port: int) -> None:
    """Hostility can end after so many starts."""
    home = make(hostile=Hostile(first_starts=1, die_at="weights"))

    assert 137 == Started(home, port, *TRITON).wait()
    Started(home, port, *TRITON).ready()


@pytest.mark.parametrize("kind", ["silent", "http"])
def test_port_of_a_stranger(make: MakeHome, port: int, kind: str) -> None:
    """A stranger on the port is found after everything is loaded; nobody ever says ready, and it gives up."""
    home = make(hostile=Hostile(listener=kind, listener_port=port), speed=20_000.0)
    assert eventually(lambda: any(role.startswith("stranger") for role in roles(home)))
    server = Started(home, port, *TRITON)
    server.until("error while attempting to bind on address")
    if kind == "silent":
        # The real one hangs for ten minutes there and ignores SIGTERM; so does this one, on its own clock.
        os.kill(server.process.pid, signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.3)
        os.kill(server.process.pid, signal.SIGKILL)

    assert 137 == server.wait()
    assert "ready to roll" not in server.log
    assert (kind == "http") == ("Initialization failed. warmup error" in server.log)


def test_stale_server_on_the_port(make: MakeHome, port: int) -> None:
    """An older server already serves: it holds memory and answers on the port."""
    home = make(hostile=Hostile(stale_port=port))

    assert eventually(lambda: "ready to roll" in (home.path / "stale.log").read_text(errors="replace"))
    assert used_mib(home) > 60_000
    assert "sglang::scheduler" in smi(home, "--query-compute-apps=process_name", "--format=csv")


def test_memory_comes_back_late(make: MakeHome, port: int) -> None:
    """After the death nvidia-smi shows no process, but the memory is still used; then it is free."""
    home = make(hostile=Hostile(free_late_s=1.0))
    server = Started(home, port, *TRITON).ready()
    os.kill(server.process.pid, signal.SIGKILL)
    server.wait()

    assert eventually(lambda: not roles(home))
    assert used_mib(home) > 60_000
    assert not smi(home, "--query-compute-apps=pid", "--format=csv,noheader").strip()
    assert eventually(lambda: used_mib(home) == 2)


def test_stranger_holds_memory(make: MakeHome, port: int) -> None:
    """What somebody else holds is missing before the load."""
    home = make(hostile=Hostile(foreign_gib=20.0))
    assert eventually(lambda: used_mib(home) == 20 * 1024 + 2)
    server = Started(home, port, *TRITON, "--mem-fraction-static", "0.9").ready()

    assert "/usr/bin/python3" in smi(home, "--query-compute-apps=name", "--format=csv,noheader")
    assert "Load weight begin. avail mem=74.32 GB" in server.log


def test_speaks_noise(make: MakeHome, port: int) -> None:
    """Bytes that are no text, colours, a line of 300 kB, a secret; the start goes on all the same."""
    server = Started(make(hostile=Hostile(noise=True)), port, *TRITON).ready()
    data = server.path.read_bytes()

    with pytest.raises(UnicodeDecodeError):
        data.decode()
    assert b"\x1b[31mred\x1b[0m" in data
    assert max(map(len, data.split(b"\n"))) >= 300_000
    assert b"Bearer sk-demo-" in data


def test_scheduler_dies_after_ready(make: MakeHome, port: int) -> None:
    """Ready, and gone a moment later."""
    hostile = Hostile(dies_ready_s=0.2)
    server = Started(make(sglang_version="0.5.12", hostile=hostile), port, *TRITON).ready()

    assert 137 == server.wait()
    assert "crashed with exit code -9" in server.log


def test_warmup_fails(make: MakeHome, port: int) -> None:
    """The first request fails after the port is open (73)."""
    server = Started(make(hostile=Hostile(warmup_error=True)), port, *TRITON)

    assert 137 == server.wait()
    assert server.log.index("Uvicorn running") < server.log.index(
        "Initialization failed. warmup error: Traceb"
    )


@pytest.mark.parametrize("when", ["warmup", "serving"])
def test_watchdog(make: MakeHome, port: int, when: str) -> None:
    """A forward hangs for 300 simulated seconds, until the watchdog ends the server (75)."""
    server = Started(make(hostile=Hostile(watchdog=when)), port, *TRITON)
    if when == "serving":
        server.ready()
        with pytest.raises(OSError, match=r"."):
            server.chat("hang")

    assert 137 == server.wait()
    assert "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)" in server.log
    assert (when == "serving") == ("ready to roll" in server.log)


def test_kernel_package_is_too_old(make: MakeHome, port: int) -> None:
    """An exception in the main process, before any child (43)."""
    server = Started(make(hostile=Hostile(kernel_mismatch=True)), port, *TRITON)

    assert 1 == server.wait()
    assert "sgl-kernel is installed with version 0.3.2, which is less than the minimum" in server.log


def test_accepts_nothing(make: MakeHome, port: int) -> None:
    """Every draft is wrong: the accept length is 1.00."""
    flags = (*TRITON, *MTP, "--mem-fraction-static", "0.9")
    server = Started(make(hostile=Hostile(accept_nothing=True)), port, *flags).ready()
    server.chat("x", max_tokens=80, ignore_eos=True)

    assert "accept len: 1.00" in server.log


def test_accepts_as_little_as_it_is_told(make: MakeHome, port: int) -> None:
    """An accept length of 1.3 in the mean over a thousand verify steps."""
    flags = (*TRITON, *MTP, "--mem-fraction-static", "0.9")
    server = Started(make(hostile=Hostile(accept_length=1.3)), port, *flags).ready()
    server.chat("x", max_tokens=1300, ignore_eos=True)

    assert 1.2 < server.get("/server_info")[1]["internal_states"][0]["avg_spec_accept_length"] < 1.4


@pytest.mark.parametrize(
    ("hostile", "text"),
    [(Hostile(nonsense=True), "!" * 30), (Hostile(empty_answers=True), "")],
    ids=["nonsense", "empty"],
)
def test_answers_without_sense(make: MakeHome, port: int, hostile: Hostile, text: str) -> None:
    """Tokens are counted; their text is "!" each, or nothing."""
    server = Started(make(hostile=hostile), port, *TRITON).ready()
    answer = server.chat("x", max_tokens=30, ignore_eos=True)[1]

    assert (text, 30) == (answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"])


def test_nvidia_smi_is_missing_hangs_or_sees_nothing(make: MakeHome, port: int) -> None:
    """Missing: no program, and fatal to SGLang 0.5.9. Hanging: late. No GPU: its words and status 6."""
    missing = make(hostile=Hostile(nvidia_smi="missing"))
    slow = make(hostile=Hostile(nvidia_smi="hangs", nvidia_smi_hang_s=0.4))
    none = make(hostile=Hostile(nvidia_smi="no-gpu"))
    began = time.monotonic()
    listed = smi(slow, "-L")
    answer = subprocess.run([none.bin / "nvidia-smi"], env=none.environment, capture_output=True, check=False)

    assert not (missing.bin / "nvidia-smi").exists()
    assert 1 == Started(missing, port, *TRITON).wait()
    assert listed.startswith("GPU 0: ")
    assert time.monotonic() - began >= 0.4
    assert (6, b"No devices were found\n") == (answer.returncode, answer.stdout)
    server = Started(none, port, *TRITON)
    assert 1 == server.wait()
    assert "No CUDA GPUs are available" in server.log


def test_logs_fast_while_loading_and_floods_after_ready(make: MakeHome, port: int) -> None:
    """Megabytes of harmless lines before and after the ready line."""
    server = Started(make(hostile=Hostile(fast_log_mb=2.0, flood_mb=3.0)), port, *TRITON).ready()

    assert server.path.read_bytes().index(b"ready to roll") > 2_000_000
    assert eventually(lambda: server.path.stat().st_size > 5_000_000)


def test_child_escapes(make: MakeHome, port: int) -> None:
    """A grandchild in a session of its own survives the server and keeps memory; `clean` ends it too."""
    home = make(hostile=Hostile(escape=True))
    server = Started(home, port, *TRITON).ready()
    assert eventually(lambda: "escaped" in roles(home))
    os.kill(server.process.pid, signal.SIGKILL)
    server.wait()

    assert eventually(lambda: roles(home) == {"escaped"})
    assert os.getsid(pid_of(home, "escaped")) != server.process.pid
    assert eventually(lambda: used_mib(home) == 512 + 2)


def test_unknown_stage_is_refused(make: MakeHome) -> None:
    """A stage that does not exist is an error when the home is made, not a silent peace later."""
    with pytest.raises(ValueError, match="no such stage: lunch"):
        make(hostile=Hostile(die_at="lunch"))


def test_spins(make: MakeHome, port: int) -> None:
    """It stands still and burns CPU; SIGTERM ends it."""
    home = make(hostile=Hostile(spin_at="graphs"))
    server = Started(home, port, *TRITON)
    server.until("Memory pool end")
    before = cpu_seconds(pid_of(home, "scheduler"))

    assert eventually(lambda: cpu_seconds(pid_of(home, "scheduler")) > before + 0.3)
    assert "Capture cuda graph begin" not in server.log
    os.kill(server.process.pid, signal.SIGTERM)
    assert 143 == server.wait()


@pytest.mark.parametrize("how", ["compile_at", "download_at", "pin_at"])
def test_is_slow_and_goes_on(make: MakeHome, port: int, how: str) -> None:
    """Compilers, a growing file or filling memory for some seconds, then the start goes on."""
    given: dict[str, Any] = {how: "graphs", "slow_s": 1.0}
    home = make(hostile=Hostile(**given))
    server = Started(home, port, *TRITON)
    server.until("Memory pool end")
    signs: dict[str, Callable[[], object]] = {
        "compile_at": lambda: any(name.endswith("/cicc") for name in programs(home)),
        "download_at": lambda: list(home.path.glob("*.incomplete")),
        "pin_at": lambda: resident(pid_of(home, "scheduler")) > 40 << 20,
    }

    assert eventually(lambda: bool(signs[how]()))
    server.ready()
    assert not list(home.path.glob("*.incomplete"))


@pytest.mark.parametrize("stage", ["graphs", "http", "ready"])
def test_scheduler_dies_unnoticed(make: MakeHome, port: int, stage: str) -> None:
    """The main process lives on with a scheduler that is dead and that nobody has reaped."""
    home = make(hostile=Hostile(scheduler_dies_at=stage))
    server = Started(home, port, *TRITON)
    server.until("ready to roll" if stage == "ready" else "Memory pool end")

    assert eventually(lambda: roles(home) >= {"server", "detokenizer"} and "scheduler" not in roles(home))
    time.sleep(0.3)
    assert server.process.poll() is None


def cpu_seconds(pid: int) -> float:
    """What a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def programs(home: DemoHome) -> list[str]:
    """The programs that run on the box."""
    return [command.split(" ")[0] for _, _, command in home.living()]
