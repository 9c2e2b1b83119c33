"""
Ready means ready: real requests that reach what dies late, and the proof that MTP speculates.

A prompt longer than one prefill chunk, two requests at once, the same prefix again and a long reply
are the requests that kill servers which only looked ready (public reports, lesson 5).
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import structs

from mtpdeploy.core.outcome import Check, Report
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.background import in_background
from mtpdeploy.remote import http
from mtpdeploy.remote.box import Box

REQUEST_TIMEOUT = 180.0
"""Seconds for one completion: the first request may compile kernels (report RUN-0003: 236 s for all)."""

REPLY_TOKENS = 96
"""Tokens of the reply that proves speculation: over 24 verify steps even if every draft is accepted."""

USEFUL_ACCEPT_LENGTH = 1.1
"""
Accept length from which speculation counts as proven; it includes the bonus token, so 1.00 means that
no draft was ever accepted, and 1.02 was a broken draft in a public report (SGLang PR 37736).
"""

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


class Verifier:
    """
    Asks one ready server the questions of `verify`.

    `unapplied` says which flags run otherwise than asked for, from what the server tells of itself.
    """

    def __init__(
        self,
        box: Box,
        server: ServerSpec,
        python: str = http.PYTHON,
        unapplied: Unapplied = lambda _server, _info: (),
    ) -> None:
        self._box = box
        self._server = server
        self._python = python
        self._unapplied = unapplied
        self._info: dict[str, Any] = {}
        self._chats = True

    def report(self) -> Report:
        """
        Ask everything. A failing question is an answer; only a lost line raises.

        Raises:
            ConnectionLost: the line to the box broke.
        """
        self._info = self._server_info()
        checks = [self._answers()]
        if checks[0].passed:
            checks += [self._long_prompt(), self._two_at_once(), self._same_prefix(), self._speculates()]
        checks += [self._as_asked(), self._applied()]
        accept = next((c.figures.get("accept_length") for c in checks if c.name == "speculates"), None)
        proven = None if self._server.mtp is None else bool(accept and accept > USEFUL_ACCEPT_LENGTH)
        return Report(tuple(checks), proven, accept, self._figures())

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

    def _speculates(self) -> Check:
        if self._server.mtp is None:
            return Check("speculates", None, "the server was not asked to speculate")
        body = {
            "text": "Write the numbers from 1 to 60, separated by commas: 1, 2, 3, 4,",
            "sampling_params": {"max_new_tokens": REPLY_TOKENS, "temperature": 0, "ignore_eos": True},
        }
        reply = http.post(
            self._box,
            self._server.port,
            "/generate",
            body,
            timeout=REQUEST_TIMEOUT,
            python=self._python,
        )
        answer = reply.json()
        meta = answer.get("meta_info", {}) if isinstance(answer, dict) else {}
        accept, source = self._accept_length(meta)
        if accept is None:
            return Check("speculates", False, reply.problem or "the server tells no accept length")
        useful = accept > USEFUL_ACCEPT_LENGTH
        said = "" if useful else ": the drafts are as good as never accepted"
        return Check(
            "speculates", useful, f"accept length {accept:.2f} ({source}){said}", {"accept_length": accept}
        )

    def _accept_length(self, meta: dict[str, Any]) -> tuple[float | None, str]:
        steps, tokens = meta.get("spec_verify_ct"), meta.get("completion_tokens")
        if isinstance(meta.get("spec_accept_length"), (int, float)):
            return float(meta["spec_accept_length"]), "of our own request"
        if steps and tokens:
            return float(tokens) / float(steps), "of our own request"
        states = self._server_info().get("internal_states") or [{}]
        average = states[0].get("avg_spec_accept_length") if isinstance(states[0], dict) else None
        if isinstance(average, (int, float)):
            return float(average), "the server's average"
        return None, ""

    def _as_asked(self) -> Check:
        figures = self._figures()
        asked, runs = self._server.number("max_running_requests"), figures.get("max_running_requests")
        if asked and runs and runs < asked:
            detail = f"{runs:.0f} requests run at a time, {asked:.0f} were asked for"
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

    def _longest(self) -> float:
        figures = self._figures()
        told = [figures[name] for name in ("context_length", "max_total_num_tokens") if name in figures]
        return min(told, default=float(1 << 20))


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
