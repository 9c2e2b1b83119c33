"""
Where in SGLang an exception was raised that the catalogue has no words for.

Searched in the exception followed by `(in function: code)` and by SGLang's own files on its stack, innermost
first: `KeyError: 'x' (in load_weights: …) (at models/qwen3.py < model_loader/loader.py < …)`. A place says
less than words do, so every weight is 6.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

_EARLY = (Stage.LAUNCHED, Stage.ARGUMENTS)
_WEIGHT = 6

ORIGINS: tuple[Signature, ...] = (
    Signature(
        cause=Cause.BAD_ARGUMENT,
        pattern=r"\(at (?:server_args|arg_groups/\w+)\.py",
        example=(
            "AssertionError: Cannot set both --a and --b (in _handle_x: assert ()) (at server_args.py < "
            "launch_server.py)"
        ),
        source="sglang 0.5.6-0.5.23 server_args.py and arg_groups: checks of several flags",
        stages=_EARLY,
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.MODEL_UNSUPPORTED,
        pattern=r"^(?:AttributeError|KeyError|TypeError)\b.{0,2000}\(at (?:configs/|utils/hf_transformers)",
        example="KeyError: 'text' (in get_config: x) (at utils/hf_transformers_utils.py < server_args.py)",
        source="sglang 0.5.6-0.5.23 configs/model_config.py: what a config of an unknown kind lacks",
        stages=_EARLY,
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.KERNEL_UNFIT,
        pattern=r"^NotImplementedError\b.{0,2000}\(at layers/(?:moe|quantization)/",
        example="NotImplementedError (in create_moe_runner: x) (at layers/quantization/modelopt_quant.py)",
        source="sgl-project/sglang PR 39807",
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.DRAFT_FORMAT,
        pattern=r"\(at (?:models|layers|model_loader)/",
        example="KeyError: 'fc.bias' (in load_weights: x) (at models/llama_eagle3.py < model_loader/x.py)",
        source="sglang 0.5.6-0.5.23 models: what is raised between begin and end of the draft's load",
        stages=(Stage.DRAFT_BEGUN,),
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.DRAFT_FORMAT,
        pattern=r"\(at models/\w*(?:eagle|mtp|nextn|dflash)\w*\.py",
        example=(
            "RuntimeError: The size of tensor a (8640) must match the size of tensor b (5760) "
            "(in forward: x) "
            "(at models/llama_eagle3.py < model_executor/model_runner.py < speculative/eagle_worker_v2.py)"
        ),
        source="sgl-project/sglang issue 32226",
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.CHECKPOINT_UNFIT,
        pattern=r"^(?!AttributeError: 'NoneType').{0,3000}\(at (?:models|layers|model_loader|configs)/",
        example=(
            "KeyError: 'model.layers.13.mlp.experts.w2_weight_scale' (in load_weights: x) "
            "(at models/deepseek_v2.py < model_loader/loader.py)"
        ),
        source="sgl-project/sglang issues 4598 and 13214; what is raised between begin and end of the load",
        stages=(Stage.WEIGHTS_BEGUN,),
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.POOL_CHECK,
        pattern=(
            r"^(?!NotImplementedError).{0,2000}\(at (?:mem_cache/|managers/(?:hi)?cache_controller)"
            r"|\(in \w*(?:mamba_radix|mamba_track|force_track)\w*: .{0,300}\) \(at managers/"
        ),
        example=(
            "AssertionError (in build_hicache_transfers: assert x) (at "
            "mem_cache/unified_cache_components/swa_component.py < managers/schedule_policy.py)"
        ),
        source="sgl-project/sglang PR 24972 and PR 36005",
        stages=(Stage.SIZED, Stage.LISTENING, Stage.READY),
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.SPEC_FAULT,
        pattern=(
            r"\(at (?:speculative/|(?:constrained|sampling|model_executor/\w*graph)[^)]{0,300}speculative/)"
        ),
        example=(
            "AttributeError: 'HybridAttnBackend' object has no attribute 'update_mamba_state' "
            "(in _mamba_verify_update: x) (at speculative/eagle_worker_v2.py < managers/scheduler.py)"
        ),
        source="sgl-project/sglang issues 24283, 25766 and 28407",
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.ATTENTION_BACKEND,
        pattern=r"\(at layers/attention/",
        example="AssertionError (in init_forward_metadata: assert x) (at layers/attention/triton_backend.py)",
        source="sglang 0.5.6-0.5.23 layers/attention: what a backend does not take",
        weight=_WEIGHT,
    ),
    Signature(
        cause=Cause.GRAPHS_FAILED,
        pattern=r"\(at [^)]*model_executor/(?:runner|\w*graph|compilation)",
        example=(
            "RuntimeError: shape '[4]' is invalid (in forward: x) (at layers/linear.py < models/x.py < "
            "model_executor/cuda_graph_runner.py)"
        ),
        source="sglang 0.5.14-0.5.23 model_executor: graphs of prefill pass any exception through",
        stages=(Stage.GRAPHS_BEGUN,),
        weight=_WEIGHT,
    ),
)
"""What the place of an exception without a name says."""
