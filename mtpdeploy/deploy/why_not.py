"""
Why a server that was asked to speculate does not: by evidence where there is some, else what is likely.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mtpdeploy import onbox
from mtpdeploy.core.foreign import decoded
from mtpdeploy.core.machine import ModelFacts
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.counts import ALGORITHM
from mtpdeploy.errors import BoxUnreachable, ConnectionLost
from mtpdeploy.remote.box import Box
from mtpdeploy.remote.fitness import drafts_for_itself

LIMIT = 30.0
"""Seconds for the box to read a few small files and the log's beginning."""

LIKELY = (
    "likely one of these: the checkpoint's tensors for the draft were not loaded, the draft is of another"
    " model, or it is read in another format than it is stored in"
)


class Evidence(Struct, frozen=True):
    """
    What the box tells of the model, of a draft of its own, and of tensors that were not loaded.
    """

    model: ModelFacts | None = None
    draft: ModelFacts | None = None
    left_out: tuple[str, ...] = ()


class Reason(Struct, frozen=True):
    """
    Why nothing is accepted, and what to do about it.
    """

    because: str
    remedy: str


def gather(box: Box, server: ServerSpec, env: Mapping[str, str], log: str, python: str) -> Evidence:
    """
    Ask the box for evidence; empty where it does not answer.

    Raises:
        ConnectionLost: the line to the box broke.
    """
    draft = server.mtp.draft_model_path if server.mtp else None
    request = {"model": server.model_path, "draft": draft, "env": dict(env), "log": log}
    out = b""
    try:
        stream = box.stream(onbox.script("drafts", request, python))
        try:
            while piece := stream.read(LIMIT):
                out += piece
        finally:
            stream.close()
        return decoded(out, Evidence)
    except ConnectionLost:
        raise
    except (BoxUnreachable, ValueError):
        return Evidence()


def why_not(server: ServerSpec, info: Mapping[str, Any], evidence: Evidence) -> Reason:
    """
    The first reason that evidence speaks for, surest first; what is likely where there is none.
    """
    if ALGORITHM in info and not info[ALGORITHM]:
        return Reason(
            f"the flag was not applied: the server runs with {ALGORITHM} None",
            "see `flags as asked`, and the run's launch.sh: what starts the server drops the flag",
        )
    model = evidence.model
    if model is not None and model.has_mtp is False and drafts_for_itself(server):
        return Reason(
            f"the checkpoint has no tensors for the draft: nothing in {model.path} is named `mtp.…`",
            "take a checkpoint that has them, or deploy it without the speculative_ flags: every step pays"
            " for drafts that are all rejected",
        )
    if evidence.left_out:
        return Reason(
            f"tensors of the draft were not loaded: “{evidence.left_out[0][:160]}”",
            "take a checkpoint whose names this SGLang knows, or an SGLang that knows these names"
            " (issue 35797: a quantised checkpoint whose list of plain layers names them otherwise)",
        )
    return _pairing(server, evidence) or _format(server, evidence) or _unknown(server)


def _pairing(server: ServerSpec, evidence: Evidence) -> Reason | None:
    target, draft = _config(evidence.model), _config(evidence.draft)
    if not draft or drafts_for_itself(server):
        return None
    for name in ("hidden_size", "vocab_size"):
        # EAGLE-3 heads tell the target's size under a name of their own.
        theirs = draft.get(f"target_{name}") or draft.get(name)
        if theirs and target.get(name) and theirs != target[name]:
            return Reason(
                f"the draft is of another model: its {name} is {theirs}, the model's {target[name]}",
                "set speculative_draft_model_path to a draft that was trained for this very model",
            )
    return None


def _format(server: ServerSpec, evidence: Evidence) -> Reason | None:
    text = evidence.model.config if evidence.model else None
    if "quantization" not in server.flags and '"quantization_config"' not in (text or ""):
        return None
    return Reason(
        "the checkpoint is quantised, and nothing else was found: the draft's layers are probably read in"
        " another format than they are stored in",
        "set speculative_draft_model_quantization (0.5.7 and newer) to what the draft is stored in, `unquant`"
        " for bf16 (SGLang PR 37736), or take another checkpoint",
    )


def _unknown(server: ServerSpec) -> Reason:
    mtp = server.mtp
    if mtp is not None and mtp.algorithm.upper() == "NGRAM":
        return Reason(
            "an n-gram draft repeats what was said before, and found nothing to repeat",
            "choose EAGLE or NEXTN where the model has layers of multi-token prediction",
        )
    return Reason(
        LIKELY,
        "look for the draft's “Load weight end” in the log and compare its size with the checkpoint's,"
        " or try another SGLang release",
    )


def _config(model: ModelFacts | None) -> dict[str, Any]:
    """
    The part of a config.json that describes the language model; empty where it cannot be read.
    """
    try:
        config = decoded((model.config if model else None) or "{}")
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config
