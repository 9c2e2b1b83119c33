"""
The model's files: names, access, completeness, architecture, the draft's format.
"""

from mtpdeploy.core.diagnosis import Cause, Signature, Stage

EXCEPTIONS: tuple[Signature, ...] = (
    # a model that was not made as a draft, mostly the target itself
    Signature(
        cause=Cause.DRAFT_FORMAT,
        pattern=r"'\w+For\w+' object has no attribute '(?:set_embed|get_embed|hot_token_id|\w*eagle)",
        example="AttributeError: 'Qwen2ForCausalLM' object has no attribute 'set_embed'",
        source="sgl-project/sglang issue 36528",
        weight=9,
    ),
    Signature(
        cause=Cause.OFFLOAD_UNSUPPORTED,
        pattern=r"functional_call got multiple values for keys",
        example=(
            "ValueError: functional_call got multiple values for keys "
            "['linear_attn.attn.dt_bias', 'linear_attn.dt_bias']"
        ),
        source="torch, from sglang 0.5.12 utils/offloader.py; a public report of 2026-05-20",
    ),
    # 66: where the draft's tensors do not fit at all, it is said
    Signature(
        cause=Cause.DRAFT_FORMAT,
        pattern=(
            r"Attempted to load weight|size mismatch for|The size of tensor a \(\d+\) must match"
            r"|KeyError: '[\w.]*(?:weight|scales?|qzeros|g_idx)\w*'"
        ),
        example=(
            "AssertionError: Attempted to load weight (torch.Size([5120, 10240])) into parameter "
            "(torch.Size([640, 5120]))"
        ),
        source="sglang 0.5.12 model_loader/weight_utils.py; a public report of 2026-05 (0.5.12-0.5.20)",
        stages=(Stage.DRAFT_BEGUN,),
        weight=7,
    ),
    # 57, before 56: what the hub answers for a gated name also says that it is no local folder
    Signature(
        cause=Cause.MODEL_ACCESS,
        pattern=r"gated repo|401 Client Error|403 (?:Client Error|Forbidden)",
        example="OSError: You are trying to access a gated repo.",
        source="Transformers, Hugging Face Hub",
    ),
    # 56
    Signature(
        cause=Cause.MODEL_NOT_FOUND,
        pattern=(
            r"is not a local folder and is not a valid model identifier|Repository Not Found"
            r"|Repo id must (?:be in the form|use alphanumeric)"
        ),
        example=(
            "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
            "'/nonexistent/model'. "
            "Use `repo_type` argument if needed."
        ),
        source="a real start with a missing folder, 0.5.23; Transformers",
    ),
    # 58
    Signature(
        cause=Cause.MODEL_OFFLINE,
        pattern=(
            r"couldn't connect to 'https://huggingface\.co'|LocalEntryNotFoundError|OfflineModeIsEnabled"
            r"|HTTPSConnectionPool\(host='[\w.-]*(?:huggingface|hf|modelscope)|429 (?:Client Error|Too Many)"
            r"|Temporary failure in name resolution|CAS service error|cas-server\.xethub"
        ),
        example=(
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find "
            "them "
            "in the cached files."
        ),
        source="a real start without a line to the hub, 0.5.23; Transformers",
    ),
    # 59, 60
    Signature(
        cause=Cause.MODEL_INCOMPLETE,
        pattern=(
            r"Cannot find any model weights with|SafetensorError|incomplete metadata"
            r"|Consistency check failed: file should be of size"
            r"|Couldn't instantiate the backend tokenizer|Should have a `model_type` key"
            r"|Can't load (?:image processor|tokenizer|feature extractor) for"
        ),
        example="RuntimeError: Cannot find any model weights with `/models/27b`",
        source="real starts with damaged folders, 0.5.23; safetensors, Transformers",
    ),
    # 62, 63
    Signature(
        cause=Cause.MODEL_UNSUPPORTED,
        pattern=(
            r"does not recognize this architecture|Model architectures .{1,300} are not supported for now"
            r"|Unrecognized configuration class|is not a registered model in the Transformers library"
            r"|No processor registered for architecture"
            r"|'TransformersFor\w+' object has no attribute|'\w+Config' object has no attribute '(?!rope_)"
        ),
        example=(
            "ValueError: Model architectures ['Qwen3_5ForConditionalGeneration'] are not supported for now. "
            "Supported architectures: dict_keys(['ApertusForCausalLM'"
        ),
        source="sglang 0.5.9 models/registry.py; a real start with an unknown name, 0.5.23; Transformers",
    ),
    # 64
    Signature(
        cause=Cause.REMOTE_CODE,
        pattern=r"trust_remote_code=True|requires you to execute the configuration file",
        example=(
            "ValueError: The repository contains custom code which must be executed to correctly load the "
            "model. "
            "Please pass the argument `trust_remote_code=True` to allow custom code to be run."
        ),
        source="Transformers; sglang 0.5.9 utils/hf_transformers_utils.py",
    ),
)
