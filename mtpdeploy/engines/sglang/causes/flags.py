"""
Causes in flags: hybrid models, speculation, backends.
"""

from mtpdeploy.core.diagnosis import Cause, Knowledge, Next

KNOWLEDGE: dict[Cause, Knowledge] = {
    Cause.HICACHE_UNSUPPORTED: Knowledge(
        Next.CLIMB,
        "Leave enable_hierarchical_cache out, or use SGLang 0.5.10 or newer, which has one for hybrid "
        "models.",
    ),
    Cause.HICACHE_NEEDS_RADIX: Knowledge(
        Next.CLIMB,
        "Give either enable_hierarchical_cache or disable_radix_cache. SGLang 0.5.9 switches the radix "
        "cache off by itself for MTP with the no_buffer strategy.",
    ),
    Cause.STRATEGY_NEEDS_EXTRA_BUFFER: Knowledge(
        Next.CLIMB,
        'Set mamba_radix_cache_strategy = "extra_buffer" (0.5.10 also needs SGLANG_ENABLE_SPEC_V2=1), or '
        "disable_radix_cache.",
    ),
    Cause.STRATEGY_NEEDS_RADIX: Knowledge(
        Next.CLIMB,
        "Give either the extra_buffer strategy or disable_radix_cache.",
    ),
    Cause.STRATEGY_NEEDS_NO_OVERLAP: Knowledge(
        Next.CLIMB,
        "Leave the strategy to SGLang (extra_buffer), or add disable_overlap_schedule.",
    ),
    Cause.EXTRA_BUFFER_UNSUPPORTED: Knowledge(
        Next.CLIMB,
        'Use mamba_radix_cache_strategy = "no_buffer" (with disable_overlap_schedule from 0.5.14 on), or '
        "disable_radix_cache. Another linear_attn_backend than triton may be the reason.",
    ),
    Cause.LAZY_WITHOUT_MTP: Knowledge(
        Next.CLIMB,
        'Use mamba_radix_cache_strategy = "extra_buffer", or SGLang 0.5.17 or newer.',
    ),
    Cause.TRACK_INTERVAL: Knowledge(
        Next.CLIMB,
        "Leave mamba_track_interval out (256), and choose a page_size that divides it.",
    ),
    Cause.PAGE_SIZE: Knowledge(
        Next.CLIMB,
        "Set page_size = 1, or an attention_backend that takes it (triton, flashinfer); or "
        "disable_radix_cache.",
    ),
    Cause.LINEAR_ATTENTION: Knowledge(
        Next.CLIMB,
        "Leave the flag out that the line names: triton as linear_attn_backend works with every state, "
        'flashinfer needs mamba_ssm_dtype = "bfloat16" on Blackwell.',
    ),
    Cause.SPEC_TOPK: Knowledge(
        Next.CLIMB,
        "Set speculative_eagle_topk = 1 and speculative_num_draft_tokens = speculative_num_steps + 1.",
    ),
    Cause.SPEC_INCOMPLETE: Knowledge(
        Next.CLIMB,
        "Give speculative_num_steps, speculative_eagle_topk and speculative_num_draft_tokens together, or "
        "none.",
    ),
    Cause.SPEC_NUMBERS: Knowledge(
        Next.CLIMB,
        "Choose speculative_num_draft_tokens of at most speculative_num_steps x speculative_eagle_topk + 1.",
    ),
    Cause.SPEC_FAULT: Knowledge(
        Next.CLIMB,
        "A fault of SGLang's speculative code and not of memory: use a newer version, another "
        "attention_backend or disable_overlap_schedule, or serve without MTP. Requests with a grammar "
        "(response_format) trigger some of these.",
    ),
    Cause.DRAFT_FORMAT: Knowledge(
        Next.CLIMB,
        'Set speculative_draft_model_quantization = "unquant" where the draft is not quantised like the '
        "target, or use a draft made for this checkpoint.",
    ),
    Cause.ATTENTION_BACKEND: Knowledge(
        Next.CLIMB,
        'Set attention_backend = "triton", which works on every card and with MTP.',
    ),
}
