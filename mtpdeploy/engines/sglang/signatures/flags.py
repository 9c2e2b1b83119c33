"""
Flags that SGLang refuses: speculation, hybrid models, caches, arguments in general.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

EXCEPTIONS: tuple[Signature, ...] = (
    # 22
    Signature(
        cause=Cause.STRATEGY_NEEDS_EXTRA_BUFFER,
        pattern=r"is not compatible with radix cache when using --mamba-scheduler-strategy no_buffer",
        example=(
            "ValueError: Speculative decoding for Qwen3_5MoeForConditionalGeneration is not compatible "
            "with radix "
            "cache when using --mamba-scheduler-strategy no_buffer."
        ),
        versions=("0.5.10", "0.5.13"),
        source="sglang 0.5.10 server_args.py; QwenLM/Qwen3.8 issue 108",
    ),
    # 23
    Signature(
        cause=Cause.STRATEGY_NEEDS_RADIX,
        pattern=r"mamba extra_buffer is not compatible with --disable-radix-cache",
        example=(
            "ValueError: mamba extra_buffer is not compatible with --disable-radix-cache. Overlap "
            "scheduling is "
            "already supported with no_buffer + disable_radix_cache."
        ),
        versions=("0.5.10", "0.5.13"),
        source="sglang 0.5.13 server_args.py",
    ),
    # 24
    Signature(
        cause=Cause.STRATEGY_NEEDS_NO_OVERLAP,
        pattern=r"no_buffer do not support overlap schedule",
        example=(
            "AssertionError: no_buffer do not support overlap schedule. "
            "Try to set disable_overlap_schedule=True."
        ),
        versions=("0.5.14", ""),
        source="sglang 0.5.14 server_args.py, 0.5.23 arg_groups/mamba_hook.py",
    ),
    # 25
    Signature(
        cause=Cause.PAGE_SIZE,
        pattern=(
            r"no_buffer only supports page_size=1|Page size must be 1 for MambaRadixCache"
            r"|either FLA_CHUNK_SIZE or page_size must be divisible"
            r"|AssertionError \(in .{0,200}TokenToKVPoolAllocator"
        ),
        example="AssertionError: Page size must be 1 for MambaRadixCache v1, got 128",
        source="sglang 0.5.6 and 0.5.9 mem_cache/mamba_radix_cache.py, 0.5.14 server_args.py; issue 14527",
    ),
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=r"no_buffer do not support trtllm_mha",
        example="AssertionError: no_buffer do not support trtllm_mha attention backend.",
        versions=("0.5.14", ""),
        source="sglang 0.5.14 server_args.py, 0.5.23 arg_groups/mamba_hook.py",
    ),
    # 26
    Signature(
        cause=Cause.EXTRA_BUFFER_UNSUPPORTED,
        pattern=r"extra_buffer (?:is not supported for|is only supported on|requires platform support)",
        example="AssertionError: Mamba extra_buffer is only supported on CUDA devices with FLA backend",
        versions=("0.5.7", ""),
        source="sglang 0.5.9 server_args.py, 0.5.23 arg_groups/mamba_hook.py; PR 22908",
    ),
    # 27
    Signature(
        cause=Cause.LAZY_WITHOUT_MTP,
        pattern=r"extra_buffer_lazy (?:is not yet supported with speculative decoding|unsupported with spec)",
        example=(
            "AssertionError: extra_buffer_lazy is not yet supported with speculative decoding. "
            "Use --mamba-scheduler-strategy extra_buffer instead."
        ),
        versions=("0.5.13", "0.5.16"),
        source="sglang 0.5.13 and 0.5.14 server_args.py",
    ),
    # 28
    Signature(
        cause=Cause.TRACK_INTERVAL,
        pattern=(
            r"mamba_track_interval \d+ must be (?:greater than or equal to|divisible by)"
            r"|AssertionError \(in .{0,200}mamba_track_interval"
        ),
        example=(
            "AssertionError: mamba_track_interval 2 must be greater than or equal to "
            "speculative_num_draft_tokens 4"
        ),
        versions=("0.5.7", ""),
        source="sglang 0.5.9 server_args.py, 0.5.23 arg_groups/mamba_hook.py",
    ),
    # 29, 31
    Signature(
        cause=Cause.SPEC_TOPK,
        pattern=(
            r"Spec v2 currently only supports topk = 1|trtllm_mha backend only supports topk = 1"
            r"|speculative_eagle_topk > 1 with page_size > 1"
        ),
        example="ValueError: Spec v2 currently only supports topk = 1 for speculative decoding.",
        source="sglang 0.5.10 server_args.py, 0.5.23 arg_groups/speculative_hook.py",
    ),
    # 30: no text; the function is what tells it from other assertions
    Signature(
        cause=Cause.SPEC_INCOMPLETE,
        pattern=(
            r"AssertionError \(in (?:_handle_speculative_decoding|_handle_eagle_family)\b"
            r"|NoneType.{0,60} \(in .{0,200}speculative_(?:num|eagle)_"
        ),
        example="AssertionError (in _handle_eagle_family: assert ()",
        source="sglang 0.5.9 server_args.py, 0.5.23 arg_groups/speculative_hook.py",
    ),
    # 30
    Signature(
        cause=Cause.SPEC_NUMBERS,
        pattern=r"selected index k out of range",
        example="RuntimeError: selected index k out of range",
        source="torch (topk); sgl-project/sglang issue 5160",
    ),
    # 33, 34
    Signature(
        cause=Cause.LINEAR_ATTENTION,
        pattern=(
            r"--enable-(?:linear|gdn)-replayssm(?:-spec)? (?:requires|is not supported|with)"
            r"|replayssm.{0,120}mutually exclusive"
            r"|--linear-attn-(?:decode|prefill|verify)-backend \w+ (?:on SM100\+ requires|is not supported)"
            r"|FlashInfer GDN decode .{0,80}is not compatible"
        ),
        example=(
            "ValueError: --enable-linear-replayssm requires the Triton linear-attn decode backend, got "
            "'flashinfer'."
        ),
        versions=("0.5.10", ""),
        source="sglang 0.5.10 and 0.5.17 server_args.py, 0.5.23 arg_groups/attention_hook.py",
    ),
    # 35, 67, 80
    Signature(
        cause=Cause.BAD_ARGUMENT,
        pattern=(
            r"Unknown speculative algorithm name:|Unsupported kv_cache_dtype"
            r"|Cannot find the config file for \w+$|please provide --dist-init-addr as host:port"
            r"|must be divisible by number of nodes"
        ),
        example="ValueError: Unknown speculative algorithm name: NEXTTWO",
        source="a real start with a misspelt algorithm, 0.5.23",
    ),
    # 36
    Signature(
        cause=Cause.HICACHE_NEEDS_RADIX,
        pattern=r"enable-hierarchical-cache and disable-radix-cache are mutually exclusive",
        example=(
            "ValueError: The arguments enable-hierarchical-cache and disable-radix-cache are mutually "
            "exclusive "
            "and cannot be used at the same time. Please use only one of them."
        ),
        source="sglang 0.5.9 server_args.py",
    ),
    # 37
    Signature(
        cause=Cause.HICACHE_UNSUPPORTED,
        pattern=r"HiRadixCache only supports MHA and MLA yet",
        example="ValueError: HiRadixCache only supports MHA and MLA yet",
        versions=("", "0.5.10"),
        source="sglang 0.5.9 mem_cache/hiradix_cache.py",
    ),
    # 65
    Signature(
        cause=Cause.CONTEXT_TOO_LONG,
        pattern=r"context_length \(\d+\) is greater than the derived context_length \(\d+\)",
        example=(
            "ValueError: Warning: User-specified context_length (1000000) is greater than the derived "
            "context_length (262144). This may lead to incorrect model outputs or CUDA errors."
        ),
        source="sglang 0.5.9 and 0.5.23 configs/model_config.py",
    ),
)

RECORDS: tuple[Signature, ...] = (
    # 69, 35
    Signature(
        cause=Cause.BAD_ARGUMENT,
        pattern=(
            r"^(?:[\w. ]+: )?error: (?:unrecognized arguments|argument |ambiguous option"
            r"|the following arguments are required)"
        ),
        example="error: unrecognized arguments: --no-such-flag 3",
        source="a real start with an unknown flag, 0.5.23; argparse",
        stages=(Stage.LAUNCHED,),
    ),
)
