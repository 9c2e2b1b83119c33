"""The scheduler process: boots, then runs batches of simulated decode steps until it is told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from . import lines
from .acts import Acts
from .boot import Boot
from .capture import activation_gib
from .child import become, parent_pid, signal_parent
from .ledger import GIB, Ledger, OutOfMemoryError
from .pipes import Message, Reader, send
from .refusals import SCHEDULER, SERVING, RefusedError, traceback_text
from .resolve import resolve
from .settings import Settings, home, load
from .speech import Drafts

IMPORT_S = 8.0
# One decode step of a 27B model on one card (51 GiB of weights at 1.79 TB/s), and for each further request;
# prefill of one token.
STEP_S, STEP_MORE_S, PREFILL_TOKEN_S = 0.031, 0.0004, 0.00018
# A step that drafts and verifies, in plain ones (qwen38-mtp PR 11, RTX PRO 6000: 1.43 and 1.46).
SPECULATIVE_STEP = 1.45
# Serving is simulated more slowly than booting, or no reader could follow it.
SERVING_SHARE = 0.25


def shared_prefix(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


class Running:
    """A request while it runs."""

    def __init__(self, message: Message, length: int) -> None:
        self.rid = str(message["rid"])
        self.prompt = int(message["prompt_tokens"])
        self.prefix = str(message.get("text") or "")
        limit = message.get("max_new_tokens")
        asked = int(limit) if limit else length
        self.length = asked if message.get("ignore_eos") or (limit and int(limit) <= length) else length
        self.reason = "length" if limit and self.length >= int(limit) else "stop"
        self.cached = 0
        self.done = 0
        self.verifies = 0
        self.accepted = 0


class Scheduler:
    """The serving half: a queue, at most `max_running_requests` at once, steps of real (scaled) time."""

    def __init__(self, boot: Boot, requests: Reader, out: int) -> None:
        self.boot, self.requests, self.out = boot, requests, out
        self.settings: Settings = boot.settings
        steps = int(boot.state.get("speculative_num_steps") or 0) if boot.speculative else 0
        hostile = boot.acts.hostile
        useless = hostile.accept_nothing or not boot.model.has_mtp
        self.drafts = Drafts(self.settings.seed, steps, useless=useless, wanted=hostile.accept_length)
        self.waiting: List[Message] = []
        self.running: List[Running] = []
        self.seen: List[str] = []
        self.accepted = self.verifies = self.steps = 0
        self.window_tokens = self.window_verifies = 0
        self.window_s = self.throughput = 0.0
        self.served = 0
        self.stopped = False

    def loop(self) -> None:
        """Serve until the main process closes its pipe or says stop."""
        while not self.stopped and not self.requests.closed:
            busy = bool(self.running or self.waiting)
            if not busy:
                self.boot.ledger.busy("idle")
            for message in self.requests.poll(0 if busy else None):
                self._receive(message)
            while self.waiting and len(self.running) < self.boot.pools.requests:
                self._prefill(self.waiting.pop(0))
            if self.running:
                self.boot.ledger.busy("decoding", len(self.running))
                self._step()

    def _receive(self, message: Message) -> None:
        kind = message.get("op")
        if kind == "stop":
            self.stopped = True
        elif kind == "state":
            send(self.out, {"rid": message["rid"], "state": self.state()})
        elif kind == "abort":
            self.running = [request for request in self.running if request.rid != message["rid"]]
            self.waiting = [request for request in self.waiting if request["rid"] != message["rid"]]
        else:
            self.waiting.append(message)

    def state(self) -> Dict[str, Any]:
        """One entry of `internal_states` in /server_info."""
        boot, pools = self.boot, self.boot.pools
        state: Dict[str, Any] = {
            "last_gen_throughput": round(self.throughput, 2),
            "memory_usage": {
                "weight": round(boot.weights_gib, 2),
                "kvcache": round(pools.k_gib + pools.v_gib, 2),
                "token_capacity": pools.tokens,
                "graph": round(boot.graph_gib, 2),
            },
            "num_running_reqs": len(self.running),
            "num_queue_reqs": len(self.waiting),
            "max_mamba_cache_size": pools.slots,
        }
        if boot.era >= (0, 5, 9):
            state["effective_max_running_requests_per_dp"] = pools.requests
        if self.verifies:
            state["avg_spec_accept_length"] = self.accepted / self.verifies
        return state

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds / max(1.0, self.settings.speed * SERVING_SHARE))

    def _usage(self, *, decode: bool) -> str:
        pools = self.boot.pools
        full = sum(request.prompt + request.done for request in self.running)
        slots = min(len(self.running) * min(pools.slots_per_request, 4), pools.slots)
        hybrid = self.boot.state.geometry.hybrid
        return lines.usage(
            hybrid=hybrid, decode=decode, full=full, tokens=pools.tokens, slots=slots, total=pools.slots
        )

    def _prefill(self, message: Message) -> None:
        """Chunk after chunk of the prompt; a chunk that finds no room for its activations ends the server."""
        self.served += 1
        hostile = self.boot.acts.hostile
        if hostile.watchdog == ("warmup" if message.get("warmup") else "serving"):
            bark(self.boot)
        request = Running(message, self.drafts.answer_length())
        if not self.boot.state.get("disable_radix_cache"):
            request.cached = self._cached(request)
        left = request.prompt - request.cached
        chunk_size = int(self.boot.state.args["chunked_prefill_size"])
        while left > 0:
            chunk = min(left, chunk_size)
            try:
                self.boot.ledger.require(activation_gib(self.boot.state, chunk) * GIB)
            except OutOfMemoryError as error:
                raise RefusedError("torch.OutOfMemoryError", str(error), SERVING) from error
            self._sleep(chunk * PREFILL_TOKEN_S)
            used = self._usage(decode=False)
            queue, rate = len(self.waiting), 1 / PREFILL_TOKEN_S
            era, running = self.boot.era, len(self.running)
            said = lines.prefill(era, chunk, request.cached, used, running=running, queue=queue, rate=rate)
            lines.log(said)
            left -= chunk
        # The prefill yields the first token; no verify step does.
        request.done = 1
        finished = request.done >= request.length
        self._answer(request, 1, finished=finished)
        if not finished:
            self.running.append(request)

    def _cached(self, request: Running) -> int:
        """Tokens of the longest prefix that an earlier prompt shares (four characters each)."""
        best = 0
        for earlier in self.seen[-32:]:
            best = max(best, shared_prefix(earlier, request.prefix) // 4)
        self.seen.append(request.prefix)
        return min(best, request.prompt - 1)

    def _step(self) -> None:
        seconds = STEP_S + STEP_MORE_S * (len(self.running) - 1)
        seconds *= SPECULATIVE_STEP if self.boot.speculative else 1.0
        self._sleep(seconds)
        self.steps += 1
        self.window_s += seconds
        for request in list(self.running):
            count = self.drafts.accepted() if self.boot.speculative else 1
            self._account(count)
            request.accepted += count - 1
            count = min(count, request.length - request.done)
            request.done += count
            request.verifies += 1
            finished = request.done >= request.length
            self._answer(request, count, finished=finished)
            if finished:
                self.running.remove(request)
        if self.steps % int(self.boot.state.args["decode_log_interval"]) == 0:
            self._report()

    def _account(self, count: int) -> None:
        self.window_tokens += count
        if self.boot.speculative:
            self.accepted += count
            self.verifies += 1
            self.window_verifies += 1

    def _answer(self, request: Running, count: int, *, finished: bool) -> None:
        message: Message = {"rid": request.rid, "from": request.done - count, "to": request.done}
        message.update(prompt_tokens=request.prompt, cached_tokens=request.cached)
        if self.boot.speculative:
            message.update(spec_verify_ct=request.verifies, accepted_drafts=request.accepted)
        if finished:
            message["finish_reason"] = request.reason
        send(self.out, message)

    def _report(self) -> None:
        self.throughput = self.window_tokens / self.window_s if self.window_s else 0.0
        accept: Optional[Any] = None
        if self.window_verifies:
            drafts = int(self.boot.state.args["speculative_num_draft_tokens"])
            accept = (self.window_tokens / self.window_verifies, drafts)
        used, queue = self._usage(decode=True), len(self.waiting)
        said = lines.decode(self.boot.era, len(self.running), used, accept, rate=self.throughput, queue=queue)
        lines.log(said)
        self.window_tokens = self.window_verifies = 0
        self.window_s = 0.0


def bark(boot: Boot) -> None:
    """A forward that hangs until the watchdog sees it: a py-spy dump, its line, SIGQUIT to the parent."""
    limit = float(boot.state.args["watchdog_timeout"])
    boot.pause(limit)
    lines.log(
        f"Pyspy dump for PID {os.getpid()}:\nProcess {os.getpid()}: sglang::scheduler\n\n"
        'Thread 1 (active): "MainThread"\n'
        "    forward_extend (sglang/srt/model_executor/model_runner.py:2410)\n"
        "    run_batch (sglang/srt/managers/scheduler.py:1150)\n"
    )
    what = f"self.watchdog_timeout={limit:g}, self.soft=False"
    lines.log(f"Scheduler watchdog timeout ({what})")
    lines.write("\n")
    boot.pause(5)
    signal_parent(signal.SIGQUIT)
    time.sleep(3600)


def _kill_family() -> None:
    """Have the main process kill its children and itself, without a word."""
    signal_parent(signal.SIGUSR1)
    time.sleep(60)


def _fail(error: RefusedError) -> None:
    """Log the exception as the scheduler does, then call for the end of the family and wait for it."""
    lines.log(f"Scheduler hit an exception: {traceback_text(error)}\n")
    if not parent_pid():
        sys.exit(1)
    signal_parent(signal.SIGQUIT)
    time.sleep(60)
    sys.exit(1)


def _say_ready(ready: int, message: Message) -> None:
    """Tell the main process; an exception of its own kind if that one is gone."""
    if not send(ready, message):
        raise RefusedError("BrokenPipeError", "[Errno 32] Broken pipe", SCHEDULER)
    os.close(ready)


def run_scheduler_process(requests: int, out: int, ready: int) -> None:
    """The child's main function: import, take the title, boot, say so, serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = load()
    reader = Reader(requests)
    arguments: Dict[str, Any] = next(reader.messages())["args"]
    time.sleep(IMPORT_S / settings.speed)
    become("sglang::scheduler")
    acts = Acts(settings, scheduler=True, kill_family=_kill_family)
    try:
        state = resolve(arguments, settings)
        boot = Boot(state, settings, Ledger(home(), settings, "sglang::scheduler"), acts)
        acts.at("init")
        boot.run()
        told = {"pools": {"tokens": boot.pools.tokens, "requests": boot.pools.requests}}
        _say_ready(ready, {"status": "ready", "seconds": time.monotonic() - boot.began, **told})
        Scheduler(boot, reader, out).loop()
    except RefusedError as error:
        with contextlib.suppress(BrokenPipeError):
            _fail(error)
