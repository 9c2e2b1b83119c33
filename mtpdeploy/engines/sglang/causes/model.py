"""
Causes in the model's files and in arguments.
"""

from mtpdeploy.core.diagnosis import Cause, Knowledge, Next
from mtpdeploy.engines.sglang import quotes, remedies

KNOWLEDGE: dict[Cause, Knowledge] = {
    Cause.MODEL_NOT_FOUND: Knowledge(
        Next.STOP,
        "Correct what the line quotes (model_path, tokenizer_path or the draft's): a folder on the box, or a "
        "name as the hub writes it (owner/model).",
    ),
    Cause.MODEL_ACCESS: Knowledge(
        Next.STOP,
        "Accept the model's terms on the hub and give the server HF_TOKEN as a secret.",
    ),
    Cause.MODEL_OFFLINE: Knowledge(
        Next.REPEAT,
        "Download the model on the box before the launch and give its folder as model_path, or let the box "
        "reach the hub (HF_HUB_OFFLINE unset, HF_ENDPOINT for a mirror).",
    ),
    Cause.MODEL_INCOMPLETE: Knowledge(
        Next.STOP,
        "Download the model's folder again: a file is missing or cut short. A vision model also needs its "
        "preprocessor_config.json.",
    ),
    Cause.CHECKPOINT_UNFIT: Knowledge(
        Next.STOP,
        "Leave quantization and load_format to the checkpoint, use another quantisation of the model, or a "
        "newer SGLang: the exception names the tensor or the format that it does not expect.",
    ),
    Cause.MODEL_UNSUPPORTED: Knowledge(
        Next.STOP,
        "Use a newer SGLang: Qwen3.5 and 3.6 need 0.5.9, and their text-only form 0.5.17.",
        quoted=quotes.config,
    ),
    Cause.REMOTE_CODE: Knowledge(
        Next.STOP,
        "Set trust_remote_code = true, if you trust the code in the model's folder.",
    ),
    Cause.OFFLOAD_UNSUPPORTED: Knowledge(
        Next.CLIMB,
        "Leave cpu_offload_gb out, and use a smaller quantisation or more GPUs (tp_size) instead.",
    ),
    Cause.CONTEXT_TOO_LONG: Knowledge(
        Next.CLIMB,
        "Lower context_length to what the model was made for, or set "
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 together with a rope setting for it.",
        remedies.context,
    ),
    Cause.BAD_ARGUMENT: Knowledge(
        Next.STOP,
        "Correct or leave out the argument that the line names.",
        quoted=quotes.argument,
    ),
}
