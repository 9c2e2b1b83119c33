"""`python -m sglang.launch_server …`: the main process of the simulated server."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Callable, List, Optional

from . import lines, processes
from .acts import Acts
from .answers import Answers
from .arguments import parse
from .engine import Engine, SchedulerDiedError
from .refusals import ARGUMENTS_OLD, PACKAGES, RefusedError, traceback_text
from .release import release
from .resolve import Resolved, resolve
from .settings import START_VARIABLE, Settings, home, load
from .warmup import Warmup

if TYPE_CHECKING:
    from .front import Front

IMPORT_S, TOKENIZER_S, STARTUP_S, FIRST_REQUEST_S = 6.0, 1.0, 0.5, 2.0
DRAIN_S = 5.0
CHILD_SIGNALS = (signal.SIGQUIT, signal.SIGUSR1)
BIND_FAILED = 3  # uvicorn's STARTUP_FAILURE


class Server:
    """The main process from its children to its end."""

    def __init__(self, state: Resolved, settings: Settings, engine: Engine, acts: Acts) -> None:
        self.state, self.settings, self.engine, self.acts = state, settings, engine, acts
        self.era = state.era
        self.answers = Answers(engine, settings)
        self.stopping = threading.Event()
        self.done = threading.Event()
        self.exit_status = 0

    def pause(self, seconds: float) -> None:
        """Let simulated seconds pass."""
        time.sleep(seconds / self.settings.speed)

    def kill_tree(self, *, parent: bool = True) -> None:
        """kill_process_tree: children first, then (usually) this process itself, by SIGKILL."""
        if self.era >= (0, 5, 13):
            pid = os.getpid()
            lines.log(f"kill_process_tree called: parent_pid={pid}, include_parent={parent}, pid={pid}")
        self.engine.kill()
        if parent:
            os.kill(os.getpid(), signal.SIGKILL)

    def die(self, _number: int = 0, _frame: Optional[FrameType] = None) -> None:
        """SIGKILL for the whole family, without a line: hostility, not SGLang's own doing."""
        self.engine.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    def launch_phase_sigquit(self, _number: int, _frame: Optional[FrameType]) -> None:
        """A child failed before the server runs."""
        lines.log("Received sigquit from a child process. It usually means the child failed.")
        self.kill_tree()

    def running_phase_sigquit(self, _number: int, _frame: Optional[FrameType]) -> None:
        """A child failed later; from 0.5.13 on SGLang looks around for five seconds first."""
        lines.log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        if self.era >= (0, 5, 13):
            lines.log("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
            self.pause(5)
            lines.log("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self.kill_tree()

    def sigterm(self, _number: int, _frame: Optional[FrameType]) -> None:
        """Drain, then leave; installed with the first request only."""
        lines.log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.answers.draining = True
        self.stopping.set()

    def sigint(self, _number: int, _frame: Optional[FrameType]) -> None:
        """Uvicorn's own end."""
        self.stopping.set()
        self.done.set()

    def drain(self) -> None:
        """sigterm_watchdog: wait for requests without a limit, then end children and server."""
        self.stopping.wait()
        while not self.done.is_set():
            self.pause(DRAIN_S / 5)
            rids = self.engine.open_requests()
            if self.answers.unhealthy:
                lines.log("Signal SIGTERM received while health check failed. Force exiting.")
                break
            lines.log(
                f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests "
                f"remaining_rids={rids}."
            )
            if not rids:
                break
            self.pause(DRAIN_S)
        if self.era < (0, 5, 19) and not self.done.is_set():
            self.kill_tree()
        self.done.set()

    def warm_up(self) -> None:
        """The warm-up thread: first request, then the ready line."""
        signalled = self.acts.hostile.warmup_error
        warmup = Warmup(self.settings, self.state.args, self.kill_tree)
        self.acts.at("warmup")
        if not self.state.get("skip_server_warmup"):
            if not warmup.run(broken=signalled):
                return
            self.pause(FIRST_REQUEST_S)
        self.answers.warm = True
        lines.log("The server is fired up and ready to roll!")
        self.acts.ready()

    def serve(self, listen: Callable[[str, int], Front]) -> int:
        """Uvicorn's part: start, bind, serve until told to stop. Returns the exit status."""
        for text in (f"Started server process [{os.getpid()}]", "Waiting for application startup."):
            lines.log(f"INFO:     {text}")
        self.acts.at("http")
        self.pause(STARTUP_S)
        signal.signal(signal.SIGINT, self.sigint)
        lines.log("INFO:     Application startup complete.")
        warm = threading.Thread(target=self.warm_up, daemon=True)
        host, port = str(self.state.args["host"]), int(self.state.args["port"])
        try:
            front = listen(host, port)
        except OSError as error:
            return self._bind_failed(error, host, port, warm)
        front.answers = self.answers
        threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True).start()
        lines.log(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        self._run_phase()
        warm.start()
        threading.Thread(target=self.drain, daemon=True).start()
        self.done.wait()
        return self._shut_down()

    def _run_phase(self) -> None:
        signal.signal(signal.SIGQUIT, self.running_phase_sigquit)
        if not (self.acts.hostile.hang_at and self.acts.hostile.ignore_term):
            signal.signal(signal.SIGTERM, self.sigterm)
        if self.era >= (0, 5, 10) and not self.engine.oblivious:
            threading.Thread(target=self.engine.watch, daemon=True).start()

    def _bind_failed(self, error: OSError, host: str, port: int, warm: threading.Thread) -> int:
        """The port is taken: the warm-up still asks whoever listens there, and may call that ready."""
        if error.errno == errno.EADDRINUSE:
            text = f"error while attempting to bind on address ('{host}', {port}): address already in use"
            lines.log(f"ERROR:    [Errno {error.errno}] {text}")
        else:
            lines.log(f"ERROR:    {error}")
        lines.log("INFO:     Waiting for application shutdown.")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        warm.start()
        warm.join()
        lines.log("INFO:     Application shutdown complete.")
        self.kill_tree(parent=False)
        return BIND_FAILED

    def _shut_down(self) -> int:
        self.kill_tree(parent=False)
        for text in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
            lines.log(f"INFO:     {text}")
        lines.log(f"INFO:     Finished server process [{os.getpid()}]")
        return self.exit_status


def _count_start(directory: str) -> None:
    """Number this start of the home's servers; the children inherit the number."""
    with open(os.path.join(directory, "starts"), "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or 0) + 1
        file.seek(0)
        file.truncate()
        file.write(str(number))
    os.environ[START_VARIABLE] = str(number)


def _check_gpu(settings: Settings, acts: Acts) -> None:
    """No card at all: torch's exception. No nvidia-smi: fatal to 0.5.9, a warning later."""
    if acts.hostile.nvidia_smi == "no-gpu":
        raise RefusedError("RuntimeError", "No CUDA GPUs are available", ARGUMENTS_OLD)
    if acts.hostile.nvidia_smi == "missing":
        text = "nvidia-smi not found. Ensure NVIDIA drivers are installed and accessible."
        if release(settings.version) < (0, 5, 10):
            raise RefusedError("RuntimeError", text, ARGUMENTS_OLD)
        lines.log(text)


def _check_packages(settings: Settings, acts: Acts) -> None:
    """Kernel packages older than SGLang wants: an exception in the main process, status 1."""
    if acts.hostile.kernel_mismatch:
        package = "sgl-kernel" if release(settings.version) < (0, 5, 10) else "sglang-kernel"
        text = (
            f"{package} is installed with version 0.3.2, which is less than the minimum required version "
            f"0.3.21. Please reinstall the latest version with `pip install {package} --force-reinstall`"
        )
        frames = (
            ("sglang/launch_server.py", 37, "<module>", "run_server(server_args)"),
            ("sglang/srt/entrypoints/engine.py", 855, "_set_envs_and_config", "assert_pkg_version("),
        )
        raise RefusedError("Exception", text, frames)


def _prepare(argv: List[str], settings: Settings, acts: Acts) -> Resolved:
    time.sleep(IMPORT_S / settings.speed)
    lines.write(lines.import_noise(release(settings.version)))
    arguments = parse(settings.version, argv)
    acts.at("arguments")
    _check_gpu(settings, acts)
    state = resolve(arguments, settings)
    for text in state.said:
        lines.log(text)
    _check_packages(settings, acts)
    shown = {
        key: ("***" if key.endswith("api_key") and value else value) for key, value in state.args.items()
    }
    lines.log(lines.server_args(state.era, shown))
    state.config["demo_arguments"] = arguments
    return state


def run(argv: List[str]) -> int:
    """The whole life of the server; the exit status unless it kills itself."""
    settings = load()
    lines.write(f"{lines.NOTICE.format(version=settings.version)}\n")
    processes.record(home(), "server")
    _count_start(str(home()))
    acts = Acts(settings, scheduler=False, kill_family=lambda: os.kill(os.getpid(), signal.SIGKILL))
    acts.at("import")
    try:
        state = _prepare(argv, settings, acts)
    except RefusedError as error:
        lines.write(traceback_text(error, module=True) + "\n")
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Held back until there are handlers: a child may fail before this process has gone on.
    signal.pthread_sigmask(signal.SIG_BLOCK, CHILD_SIGNALS)
    engine = Engine(state, state.config.pop("demo_arguments"))
    engine.oblivious = bool(acts.hostile.scheduler_dies_at)
    acts.scheduler_pid = engine.scheduler.pid
    server = Server(state, settings, engine, acts)
    acts.kill_family = server.die
    signal.signal(signal.SIGQUIT, server.launch_phase_sigquit)
    signal.signal(signal.SIGUSR1, server.die)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CHILD_SIGNALS)
    server.pause(TOKENIZER_S)
    lines.log("Using default HuggingFace chat template with detected content format: openai")
    from . import front  # noqa: PLC0415  # slow to import; the scheduler is booting meanwhile

    try:
        engine.wait_ready()
    except SchedulerDiedError as error:
        where = (
            f'  File "{PACKAGES}/sglang/srt/entrypoints/engine.py", line 893, in _wait_for_scheduler_ready'
        )
        lines.write(f"Traceback (most recent call last):\n{where}\n{error}\n")
        engine.kill()
        return 1
    return server.serve(lambda host, port: front.Front((host, port), front.Handler))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
