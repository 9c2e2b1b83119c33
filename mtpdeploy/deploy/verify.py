"""
Ready means ready: real requests that reach what dies late, and the proof that MTP speculates.

A prompt longer than one prefill chunk, two requests at once, the same prefix again and a long reply
are the requests that kill servers which only looked ready (public reports, lesson 5).
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from mtpdeploy.core.launch import AttemptRecord
from mtpdeploy.core.machine import Facts
from mtpdeploy.core.outcome import SENSE, SPECULATES, Check, Report
from mtpdeploy.core.proof import USEFUL_ACCEPT_LENGTH, Generation, Proof, Speculation
from mtpdeploy.core.sense import Sense
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import counted
from mtpdeploy.deploy.background import in_background
from mtpdeploy.deploy.order import Tools
from mtpdeploy.deploy.speculation import AT_ONCE, Room, body, plan_waves, read_proof
from mtpdeploy.deploy.why_not import gather, why_not
from mtpdeploy.engines.sglang.counts import average, gauge
from mtpdeploy.remote import http
from mtpdeploy.remote.box import Box
from mtpdeploy.remote.measure import measure
from mtpdeploy.remote.stale import requests_running

REQUEST_TIMEOUT = 180.0
"""Seconds for one completion: the first request may compile kernels (report RUN-0003: 236 s for all)."""

WORDS_A_LINE = 6
"""Words of one line of the long prompt; a tokenizer makes at least as many tokens of them."""

DEFAULT_CHUNK = 8192
"""Tokens of a prefill chunk where the server does not tell: the default on a 96 GB card (0.5.6-0.5.23)."""

LONG_TEXT_ROOM = 512
"""Tokens that a server must take for a long prompt to be worth asking; the others have some 50 to 100."""

TOKENS_A_WORD = 4
"""Room for one word of the long prompt: 3.5 tokens with a byte-level vocabulary of 512, the worst seen."""

NO_CHAT_TEMPLATE = b"chat template"
"""In the refusal of a model without one (transformers 4.44 and newer; 400 in SGLang 0.5.23)."""


Unapplied = Callable[[ServerSpec, dict[str, Any]], tuple[str, ...]]


def verifier(tools: Tools, record: AttemptRecord, facts: Facts, *, full: bool = False) -> "Verifier":
    """
    Who asks the server of a run; `full` takes the time for speeds and power that can be relied on.
    """
    version = record.sglang_version
    return Verifier(
        tools.box,
        record.server,
        facts.python or http.PYTHON,
        lambda asked, info: tools.engine.unapplied(asked, info, version),
        log=f"{facts.work_dir}/runs/{record.run}/{record.log}",
        full=full,
    )


class Verifier:
    """
    Asks one ready server the questions of `verify`.

    `unapplied` says which flags run otherwise than asked for, from what the server tells of itself. `log` is
    where its log lies on the box, read where it does not speculate.
    """

    def __init__(
        self,
        box: Box,
        server: ServerSpec,
        python: str = http.PYTHON,
        unapplied: Unapplied = lambda _server, _info: (),
        *,
        log: str = "",
        full: bool = False,
    ) -> None:
        self._box = box
        self._server = server
        self._python = python
        self._unapplied = unapplied
        self._log = log
        self._full = full
        self._info: dict[str, Any] = {}
        self._chats = True

    def report(self) -> Report:
        """
        Ask everything. A failing question is an answer; only a lost line raises.

        Raises:
            ConnectionLost: the line to the box broke.
        """
        self._info = self._server_info()
        others = requests_running(self._box, (self._server.port,), self._python) if self._full else None
        checks = [self._answers()]
        found = Speculation(Proof.NOT_ANSWERING, because=checks[0].detail)
        if checks[0].passed:
            checks += [self._long_prompt(), self._two_at_once(), self._same_prefix()]
            found = structs.replace(self._prove(), others=others or 0)
            checks += [*_makes_sense(found), _speculates(found, asked=self._server.mtp is not None)]
        checks += [self._as_asked(), self._applied()]
        accept = found.accept_length
        proven = None if self._server.mtp is None else bool(accept and accept > USEFUL_ACCEPT_LENGTH)
        return Report(tuple(checks), proven, accept, self._figures(), found)

    def _server_info(self) -> dict[str, Any]:
        for path in ("/server_info", "/get_server_info"):
            reply = http.get(self._box, self._server.port, path, timeout=20, python=self._python)
            answer = reply.json() if reply.status == 200 else None
            if isinstance(answer, dict):
                return answer
        return {}

    def _complete(self, prompt: str, max_tokens: int) -> tuple[http.Reply, float]:
        body: dict[str, Any] = {"model": self._server.served_name, "max_tokens": max_tokens, "temperature": 0}
        if self._chats:
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": prompt}]
        else:
            path, body["prompt"] = "/v1/completions", prompt
        begun = time.monotonic()
        reply = http.post(
            self._box, self._server.port, path, body, timeout=REQUEST_TIMEOUT, python=self._python
        )
        return reply, time.monotonic() - begun

    def _answers(self) -> Check:
        prompt = "Say in one short sentence what a prime number is."
        reply, seconds = self._complete(prompt, 32)
        if reply.status == 400 and NO_CHAT_TEMPLATE in reply.body.lower():
            self._chats = False
            reply, seconds = self._complete(prompt, 32)
        check = _completion("answers", reply, seconds)
        if not self._chats and check.passed:
            note = "; the model has no chat template: asked by /v1/completions"
            return structs.replace(check, detail=check.detail + note)
        return check

    def _long_prompt(self) -> Check:
        return self._long("a prompt longer than one prefill chunk", "How many lines were that?")

    def _same_prefix(self) -> Check:
        return self._long("the same prefix again", "Which word comes most often?")

    def _long(self, name: str, question: str) -> Check:
        text = self._long_text()
        if not text:
            return Check(name, None, f"the server takes prompts of at most {self._longest():.0f} tokens")
        return _completion(name, *self._complete(f"{text}\n{question}", 16))

    def _two_at_once(self) -> Check:
        prompts = ["Count from one to twenty in words.", "Name ten rivers, one a line."]
        asked = [in_background(partial(self._complete, prompt, 48), "completion") for prompt in prompts]
        checks = [_completion("two at once", *reply.result()) for reply in asked]
        return next((c for c in checks if not c.passed), checks[0])

    def _prove(self) -> Speculation:
        """
        The generations of the proof, counted and timed; with the reason where nothing is accepted.
        """
        room = Room(self._longest(), self._pool(), self._figures().get("max_running_requests", AT_ONCE))
        waves, tokens = plan_waves(room, full=self._full)
        if not waves:
            return Speculation(
                Proof.NOT_ASKED if self._server.mtp is None else Proof.NOT_SPECULATING,
                because=f"the server takes at most {room.longest:.0f} tokens: too few to prove anything",
                remedy="give it a longer context_length, or more memory for keys and values",
            )
        measured = measure(
            self._box,
            [[body(kind, tokens) for kind in wave] for wave in waves],
            port=self._server.port,
            python=self._python,
            timeout=REQUEST_TIMEOUT,
        )
        found = read_proof(self._server, waves, measured, self._average)
        if self._info.get("simulated"):
            found = structs.replace(found, timed_by=f"{found.timed_by}; simulated, faster than a real card")
        if self._server.mtp is None or (found.accept_length or 1.0) > USEFUL_ACCEPT_LENGTH:
            return found
        return self._with_reason(found)

    def _with_reason(self, found: Speculation) -> Speculation:
        env = {**self._box.host.env, **self._server.env}
        evidence = gather(self._box, self._server, env, self._log, self._python)
        reason = why_not(self._server, self._info, evidence)
        if found.proof is not Proof.NOT_SPECULATING:
            return structs.replace(found, remedy=found.remedy or f"and nothing is accepted: {reason.because}")
        return structs.replace(found, because=reason.because, remedy=reason.remedy)

    def _average(self) -> tuple[float | None, str]:
        told = average(self._server_info())
        if told is not None:
            return told, "the server's average"
        reply = http.get(self._box, self._server.port, "/metrics", timeout=20, python=self._python)
        text = reply.body.decode("utf-8", "replace") if reply.status == 200 else ""
        return gauge(text), "the server's /metrics"

    def _as_asked(self) -> Check:
        figures = self._figures()
        asked, runs = self._server.number("max_running_requests"), figures.get("max_running_requests")
        if asked and runs and runs < asked:
            run = counted(round(runs), "request runs", "requests run")
            detail = f"{run} at a time, {asked:.0f} were asked for"
            return Check("runs as asked", None, detail, figures)
        if not figures:
            return Check("runs as asked", None, "the server does not tell", figures)
        told = ", ".join(f"{name} {value:.0f}" for name, value in figures.items())
        return Check("runs as asked", True, told, figures)

    def _applied(self) -> Check:
        if not self._info:
            return Check("flags as asked", None, "the server does not tell")
        differing = self._unapplied(self._server, self._info)
        if differing:
            return Check("flags as asked", None, "; ".join(differing))
        return Check("flags as asked", True, f"all {len(self._server.flags)} run as they were given")

    def _figures(self) -> dict[str, float]:
        states = self._info.get("internal_states") or [{}]
        state = states[0] if isinstance(states[0], dict) else {}
        runs = state.get("effective_max_running_requests_per_dp") or self._info.get("max_running_requests")
        found = {
            "max_running_requests": runs,
            "max_total_num_tokens": self._info.get("max_total_num_tokens"),
            "context_length": self._info.get("context_length"),
        }
        return {k: float(v) for k, v in found.items() if isinstance(v, (int, float)) and v}

    def _long_text(self) -> str:
        """
        A text of more than one prefill chunk, shorter where the server takes no such prompt; "" where it
        takes none worth asking.
        """
        if self._longest() < LONG_TEXT_ROOM:
            return ""
        chunk = int(self._info.get("chunked_prefill_size") or DEFAULT_CHUNK)
        words = min(chunk + chunk // 8, int(self._longest()) // TOKENS_A_WORD)
        return "\n".join(f"line {n} of a long text" for n in range(words // WORDS_A_LINE))

    def _pool(self) -> float:
        return self._figures().get("max_total_num_tokens", float(1 << 20))

    def _longest(self) -> float:
        figures = self._figures()
        told = [figures[name] for name in ("context_length", "max_total_num_tokens") if name in figures]
        return min(told, default=float(1 << 20))


def _makes_sense(found: Speculation) -> list[Check]:
    """
    Whether the replies can be a model's: broken ones fail, odd ones are told. Nothing where none came.
    """
    answered = [g for g in found.generations if not g.problem]
    odd = [g for g in answered if g.sense is not Sense.SOUND]
    if not answered:
        return []
    if not odd:
        return [Check(SENSE, True, f"{counted(len(answered), 'reply', 'replies')} of {_kinds(answered)}")]
    first = (found.broken or odd)[0]
    told = f"{len(odd)} of {len(answered)} replies do not; {first.kind}: {first.nonsense}"
    return [Check(SENSE, False if found.broken else None, told)]


def _speculates(found: Speculation, *, asked: bool) -> Check:
    if not asked:
        return Check(SPECULATES, None, "the server was not asked to speculate")
    accept = found.accept_length
    if accept is None:
        return Check(SPECULATES, False, found.because or "no prompt of it fits the server")
    most = f" of at most {found.most}" if found.most else ""
    steps = f", {found.verify_steps} verify steps" if found.verify_steps else ""
    told = f"accept length {accept:.2f}{most} ({found.source}{steps})"
    useful = accept > USEFUL_ACCEPT_LENGTH
    said = "" if useful else ": the drafts are as good as never accepted"
    return Check(SPECULATES, useful, told + said, {"accept_length": accept})


def _kinds(generations: Sequence[Generation]) -> str:
    return ", ".join(dict.fromkeys(g.kind for g in generations))


def _completion(name: str, reply: http.Reply, seconds: float) -> Check:
    answer = reply.json()
    usage = (answer.get("usage") or {}) if isinstance(answer, dict) else {}
    tokens = usage.get("completion_tokens") or 0
    if reply.status != 200 or not tokens:
        problem = reply.problem or reply.body[:300].decode("utf-8", "replace") or "an empty answer"
        refused = 400 <= reply.status < 500
        detail = f"HTTP {reply.status}: {problem}" if reply.status else problem
        return Check(name, False, detail, refused=refused)
    prompt = usage.get("prompt_tokens") or 0
    detail = f"{prompt} prompt tokens, {tokens} tokens in {seconds:.2f} s"
    return Check(name, True, detail, {"prompt_tokens": prompt, "tokens": tokens, "seconds": seconds})
