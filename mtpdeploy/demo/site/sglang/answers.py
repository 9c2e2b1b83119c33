"""What the HTTP server answers: SGLang's routes as functions from a request to JSON."""

from __future__ import annotations

import queue
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .engine import Engine
from .pipes import Message
from .release import release
from .settings import Settings
from .speech import flatten, sampling, tokens_of

Answer = Tuple[int, Dict[str, Any]]
# SGLANG_HEALTH_CHECK_TIMEOUT: how long a health check waits for its token.
HEALTH_S = 20.0
# A request nobody answers is given up after this many simulated seconds, or no test would end.
ABANDON_S = 3600.0
# The chat template adds about so many tokens.
TEMPLATE_TOKENS = 10


class BadRequestError(Exception):
    """The client's mistake: status 400 with this text."""


class Answers:
    """Everything the routes need; `warm` turns true when the first request has come through."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.args = engine.state.args
        self.warm = False
        self.unhealthy = False
        self.draining = False

    @property
    def model(self) -> str:
        """The served model's name."""
        return str(self.args["served_model_name"])

    def model_info(self) -> Answer:
        """/model_info, which the warm-up asks first."""
        return 200, {
            "model_path": self.args["model_path"],
            "tokenizer_path": self.args["tokenizer_path"],
            "is_generation": True,
            "has_image_understanding": self.engine.state.geometry.multimodal,
            "model_type": self.engine.state.config.get("model_type"),
            "architectures": self.engine.state.geometry.architectures,
            "simulated": True,
        }

    def server_info(self) -> Answer:
        """/server_info: every argument, the version, and the scheduler's state."""
        state = self.engine.ask_state(HEALTH_S / self.settings.speed)
        if state is None:
            return 503, {"error": "scheduler did not answer"}
        about = {"version": self.settings.version, "internal_states": [state], "simulated": True}
        return 200, {**self.args, **about, "status": "ready" if self.warm else "starting"}

    def models(self) -> Answer:
        """/v1/models."""
        card = {"id": self.model, "object": "model", "owned_by": "sglang", "root": self.model}
        return 200, {"object": "list", "data": [{**card, "max_model_len": self.args["context_len"]}]}

    def health(self) -> Answer:
        """/health and /health_generate: a token of its own within 20 s, or 503."""
        if not self.warm or self.draining:
            return 503, {"status": "starting" if not self.warm else "shutting down"}
        began = time.monotonic()
        rid, box = self.engine.submit({"text": "health", "prompt_tokens": 1, "max_new_tokens": 1})
        try:
            box.get(timeout=max(HEALTH_S / self.settings.speed, 0.5))
        except queue.Empty:
            self.unhealthy = True
            return 503, {"status": "unhealthy"}
        finally:
            self.engine.forget(rid)
        # SGLang looks once a second whether the token has come.
        time.sleep(max(0.0, 1 / self.settings.speed - (time.monotonic() - began)))
        self.unhealthy = False
        return 200, {}

    def load(self, path: str) -> Optional[List[Dict[str, Any]]]:
        """What /get_load (to 0.5.22) and the `loads` of /v1/loads (from 0.5.8) say; None: no such route."""
        since, until = {"/get_load": ((0, 5, 6), (0, 5, 22)), "/v1/loads": ((0, 5, 8), (0, 5, 99))}[path]
        if not since <= release(self.settings.version)[:3] <= until:
            return None
        state = self.engine.ask_state(HEALTH_S / self.settings.speed) or {}
        running, waiting = state.get("num_running_reqs", 0), state.get("num_queue_reqs", 0)
        told = {"dp_rank": 0, "num_waiting_reqs": waiting}
        if path == "/get_load":
            return [{**told, "num_reqs": running + waiting, "ts_tic": time.perf_counter()}]
        return [{**told, "num_running_reqs": running}]

    def metrics(self) -> Optional[str]:
        """/metrics in Prometheus' text format; None without --enable-metrics."""
        if not self.args.get("enable_metrics"):
            return None
        state = self.engine.ask_state(HEALTH_S / self.settings.speed) or {}
        memory = state.get("memory_usage") or {}
        values = {
            "sglang:num_running_reqs": state.get("num_running_reqs", 0),
            "sglang:num_queue_reqs": state.get("num_queue_reqs", 0),
            "sglang:gen_throughput": state.get("last_gen_throughput", 0.0),
            "sglang:spec_accept_length": state.get("avg_spec_accept_length", 0.0),
            "sglang:max_total_num_tokens": memory.get("token_capacity", 0),
        }
        label = f'{{model_name="{self.model}"}}'
        return "".join(f"# TYPE {name} gauge\n{name}{label} {value}\n" for name, value in values.items())

    def _submit(self, text: str, extra: int, body: Dict[str, Any], *, warmup: bool) -> Tuple[str, Any]:
        tokens = tokens_of(text) + extra
        limit = int(self.args["context_len"])
        if tokens >= limit:
            raise BadRequestError(
                f"The input ({tokens} tokens) is longer than the model's context length ({limit} tokens)."
            )
        fields = {"text": text, "prompt_tokens": tokens, "warmup": warmup, **sampling(body)}
        return self.engine.submit(fields)

    def _pieces(self, rid: str, box: queue.Queue[Message]) -> Iterator[Message]:
        finished = False
        created_at, first_at = time.time(), 0.0
        try:
            while not finished:
                message = box.get(timeout=ABANDON_S / self.settings.speed)
                finished = "finish_reason" in message
                first_at = first_at or time.time()
                times = {"created_at": created_at, "first_at": first_at, "finished_at": time.time()}
                yield {**message, **times}
        except queue.Empty:
            return
        finally:
            self.engine.forget(rid, abort=not finished)

    def chat(self, body: Dict[str, Any], *, warmup: bool) -> Iterator[Message]:
        """The pieces of a chat completion's answer."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequestError("messages: Field required")
        return self._pieces(*self._submit(flatten(messages), TEMPLATE_TOKENS, body, warmup=warmup))

    def complete(self, body: Dict[str, Any], *, warmup: bool) -> Iterator[Message]:
        """The pieces of an answer to /generate or /v1/completions."""
        text = body.get("text") or body.get("prompt") or ""
        if isinstance(text, list):
            text = text[0] if text else ""
        if not text and not body.get("input_ids"):
            raise BadRequestError("Either text, input_ids or input_embeds should be provided.")
        text = str(text) or " " * 4 * len(body.get("input_ids") or [])
        return self._pieces(*self._submit(text, 0, body, warmup=warmup))


def join(pieces: Iterator[Message]) -> Tuple[str, Message]:
    """The whole text, and the last piece with `to` counting every token."""
    texts: List[str] = []
    last: Message = {}
    for piece in pieces:
        texts.append(str(piece.get("text") or ""))
        last = piece
    if "finish_reason" not in last:
        raise TimeoutError
    return "".join(texts), last


def usage(last: Message) -> Dict[str, Any]:
    """OpenAI's `usage`."""
    prompt, done = int(last.get("prompt_tokens", 0)), int(last.get("to", 0))
    details = {"cached_tokens": int(last.get("cached_tokens", 0))}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": done,
        "total_tokens": prompt + done,
        "prompt_tokens_details": details,
    }


def meta_info(rid: str, last: Message, args: Dict[str, Any], version: str) -> Dict[str, Any]:
    """`meta_info` of /generate; once it is finished with its time and the speculative counts."""
    done, reason = int(last.get("to", 0)), last.get("finish_reason")
    meta: Dict[str, Any] = {
        "id": rid,
        "finish_reason": {"type": reason, "length": done} if reason else None,
        "prompt_tokens": last.get("prompt_tokens"),
        "completion_tokens": done,
        "cached_tokens": last.get("cached_tokens"),
        "weight_version": "default",
        "sglang_version": version,
    }
    if not reason:
        return meta
    meta["e2e_latency"] = last["finished_at"] - last["created_at"]
    decoding = last["finished_at"] - last["first_at"]
    if args.get("enable_metrics") and decoding > 0:
        meta["decode_throughput"] = done / decoding
    if last.get("spec_verify_ct"):
        meta.update(
            speculative(int(last["spec_verify_ct"]), int(last["accepted_drafts"]), done, args, version)
        )
    return meta


def speculative(steps: int, accepted: int, done: int, args: Dict[str, Any], version: str) -> Dict[str, Any]:
    """The speculative counts by the names that a release gives them (tokenizer_manager.py, 0.5.6-0.5.23)."""
    proposed = steps * (int(args["speculative_num_draft_tokens"]) - 1)
    told: Dict[str, Any] = {"spec_verify_ct": steps, "spec_accept_length": done / steps}
    told["spec_accept_rate"] = accepted / max(proposed, 1)
    era = release(version)
    if era < (0, 5, 11):
        told.update(spec_accept_token_num=accepted, spec_draft_token_num=proposed)
    elif era < (0, 5, 21):
        told.update(spec_accepted_drafts=accepted, spec_proposed_drafts=proposed)
    if era >= (0, 5, 12):
        told.update(spec_num_correct_drafts=accepted, spec_num_proposed_drafts=proposed)
    return told


def chat_body(identity: str, model: str, text: str, last: Message) -> Dict[str, Any]:
    """A whole chat completion."""
    message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
    choice = {"index": 0, "message": message, "finish_reason": last.get("finish_reason")}
    kind = "chat.completion"
    created = int(time.time())
    return {
        "id": identity,
        "object": kind,
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage(last),
    }


def chat_chunk(identity: str, model: str, piece: Message) -> Dict[str, Any]:
    """One event of a streamed chat completion."""
    delta = {"role": "assistant", "content": piece.get("text") or ""}
    choice = {"index": 0, "delta": delta, "finish_reason": piece.get("finish_reason")}
    kind = "chat.completion.chunk"
    return {
        "id": identity,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": None,
    }
