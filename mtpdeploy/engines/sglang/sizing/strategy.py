"""
What a release makes of the flags for drafts and for recurrent state: numbers, the overlap scheduler, slots.

From server_args.py (0.5.6-0.5.13), arg_groups/speculative_hook.py (0.5.13-0.5.23), and
`_handle_mamba_radix_cache` (0.5.9-0.5.16) or `_mamba_radix_cache_resolution` (0.5.17-0.5.23).
"""

from msgspec import Struct

from mtpdeploy.core.model import ModelShape
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.sglang.concessions import STRATEGY

DRAFT, DRAFT_BRANCHED = (3, 1, 4), (5, 4, 8)
"""Steps, top-k and draft tokens where EAGLE is given none of them (0.5.6-0.5.23, auto_choose_…_params)."""

BRANCHED = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
"""Models whose draft branches by default; to 0.5.7 every model but those of `STRAIGHT`."""

STRAIGHT = ("Deepseek", "GptOss", "BailingMoe", "Glm4Moe", "MistralLarge3", "Pixtral", "MiMoV2")
"""Beginnings of the models whose draft is a chain in 0.5.6 and 0.5.7, too."""

DRAFT_TOKENS = {"NGRAM": 12, "DFLASH": 16}
"""Draft tokens where none are given (0.5.9-0.5.23); of DFLASH only where its draft model names none."""

STEPLESS = ("NGRAM", "DFLASH", "DSPARK", "UNO")
"""Algorithms whose draft tokens do not follow from steps."""

OWN_DRAFT = ("Deepseek", "Glm4Moe", "GlmMoeDsa", "BailingMoeV", "MistralLarge3", "Pixtral", "HYV", "Qwen4Exp")
"""Beginnings of models for which SGLang sets the draft's path to the target's by itself (0.5.9-0.5.23)."""

EXTRA_BUFFER_SINCE = {
    "KimiLinearForCausalLM": (0, 5, 16),
    "Qwen3_5ForCausalLM": (0, 5, 19),
    "Qwen3_5MoeForCausalLM": (0, 5, 19),
    "NemotronHForCausalLM": (0, 5, 13),
    "FalconH1ForCausalLM": (0, 5, 13),
    "GraniteMoeHybridForCausalLM": (0, 5, 13),
    "JetNemotronForCausalLM": (9999,),
    "JetVLMForConditionalGeneration": (9999,),
    "Lfm2ForCausalLM": (9999,),
    "Lfm2MoeForCausalLM": (9999,),
    "ZayaForCausalLM": (9999,),
}
"""Models that get tracking slots from some release on only, or never (`_MAMBA_EXTRA_BUFFER_ARCHS`)."""


class Speculation(Struct, frozen=True):
    """
    The draft: SGLang's name of the algorithm, steps, branches, and tokens verified at a time (0: no draft).

    `path` says that a draft model's path is given, or that SGLang fills it in.
    """

    algorithm: str = ""
    steps: int = 0
    topk: int = 1
    draft_tokens: int = 0
    path: bool = False


class Scheduling(Struct, frozen=True):
    """
    How states are kept: the strategy ("" without recurrent layers), whether the overlap scheduler runs,
    whether prefixes are cached, and the page size.
    """

    strategy: str
    overlap: bool
    radix: bool
    page_size: int


def speculation(server: ServerSpec, model: ModelShape, era: tuple[int, ...]) -> Speculation:
    """
    The draft that a server's flags ask for; with one branch its tokens are the steps and one more.
    """
    mtp = server.mtp
    if mtp is None:
        return Speculation()
    algorithm = "EAGLE" if mtp.algorithm.upper() == "NEXTN" else mtp.algorithm.upper()
    path = bool(mtp.draft_model_path) or model.architecture.startswith(OWN_DRAFT)
    if algorithm in STEPLESS:
        tokens = mtp.num_draft_tokens or DRAFT_TOKENS.get(algorithm, DRAFT[2])
        return Speculation(algorithm, mtp.num_steps or 0, mtp.eagle_topk or 1, tokens, path)
    if mtp.num_steps is None and mtp.eagle_topk is None and mtp.num_draft_tokens is None:
        return Speculation(algorithm, *_chosen(algorithm, model.architecture, era), path)
    topk = mtp.eagle_topk or 1
    steps = mtp.num_steps or max(1, (mtp.num_draft_tokens or DRAFT[2]) - 1)
    tokens = steps + 1 if topk == 1 else mtp.num_draft_tokens or steps + 1
    return Speculation(algorithm, steps, topk, tokens, path)


def _chosen(algorithm: str, architecture: str, era: tuple[int, ...]) -> tuple[int, int, int]:
    if algorithm == "STANDALONE":
        return DRAFT
    branched = architecture in BRANCHED or (era < (0, 5, 8) and not architecture.startswith(STRAIGHT))
    return DRAFT_BRANCHED if branched else DRAFT


def scheduling(
    server: ServerSpec, model: ModelShape, era: tuple[int, ...], draft: Speculation, page_size: int
) -> Scheduling:
    """
    The state strategy after the release's own choice, and what that choice takes with it.
    """
    radix = not server.flags.get("disable_radix_cache")
    overlap = _overlap(server, era, draft)
    if model.state is None:
        return Scheduling("", overlap, radix, page_size)
    if model.architecture == "KimiLinearForCausalLM" and era < (0, 5, 14):
        radix = False
    strategy = str(server.flags.get(STRATEGY) or "auto") if era >= (0, 5, 7) else "no_buffer"
    if strategy == "auto":
        wanted = era >= (0, 5, 14) and (overlap or page_size > 1) and takes_extra_buffer(server, model, era)
        strategy = "extra_buffer" if wanted else "no_buffer"
        overlap = overlap and (wanted or era < (0, 5, 14))
    if strategy == "no_buffer" and radix:
        if draft.draft_tokens and (0, 5, 9) <= era < (0, 5, 10):
            # Speculation silently takes the radix cache with it in this one release.
            radix = False
        if (0, 5, 11) <= era < (0, 5, 14):
            page_size = 1
    return Scheduling(strategy, overlap, radix, page_size)


def takes_extra_buffer(server: ServerSpec, model: ModelShape, era: tuple[int, ...]) -> bool:
    """
    Whether the release keeps tracking slots for this model; from 0.5.14 on with Triton's kernels only.
    """
    if era >= (0, 5, 14) and server.flags.get("linear_attn_backend") not in (None, "triton"):
        return False
    return era >= EXTRA_BUFFER_SINCE.get(model.architecture, (0, 5, 7))


def is_on(value: str | None) -> bool:
    """
    Whether a variable switches something on, as SGLang reads it (environ.py, EnvBool).
    """
    return (value or "").strip().lower() in ("1", "true", "yes", "y", "on", "t")


def _overlap(server: ServerSpec, era: tuple[int, ...], draft: Speculation) -> bool:
    """
    Whether the overlap scheduler runs; with a draft the second worker has to be switched on for it at first.
    """
    asked = not server.flags.get("disable_overlap_schedule")
    if not draft.draft_tokens or era >= (0, 5, 14):
        return asked
    if draft.algorithm in STEPLESS:
        return False
    switch = server.env.get("SGLANG_ENABLE_SPEC_V2")
    if era < (0, 5, 11):
        # Here the switch also turns an overlap scheduler on that the flags turn off.
        return is_on(switch)
    chain = draft.topk == 1 or era >= (0, 5, 13)
    return asked and chain and (switch is None or is_on(switch))
