"""
Remedies by the words of the line that proves a failure, and flags named as the release at hand spells them.
"""

import re

from mtpdeploy.engines.sglang.flag_table import (
    Flag,
    find,
    known_until,
    nearest,
    releases,
    spell,
)
from mtpdeploy.engines.sglang.server_args import RENAMED
from mtpdeploy.engines.sglang.versions import parse_version

OF_VLLM = {
    "max_num_seqs": "max_running_requests",
    "gpu_memory_utilization": "mem_fraction_static",
    "max_model_len": "context_length",
    "max_num_batched_tokens": "chunked_prefill_size",
    "enforce_eager": "disable_cuda_graph",
    "speculative_config": "speculative_algorithm and its numbers",
    "kv_cache_memory_bytes": "max_total_tokens",
}
"""What vLLM calls its flags (docs.vllm.ai, engine arguments), and SGLang's nearest; a public report."""

TOLD = 3
"""Refused flags that are told one by one: a sentence or two is a remedy, a list is none."""

_OPTION = re.compile(r"--([a-z][\w-]*)")
_CHOICE = re.compile(r"argument (?:\S+/)?--([\w-]+)(?:/\S+)?: invalid choice: '([^']+)'")
_DRIVER_SYMBOL = re.compile(r"undefined symbol: (cu[A-Z]\w+)")


def argument(proof: str) -> str | None:
    """
    A flag that argparse refuses: of another engine, of another release, misspelt.
    """
    if choice := _CHOICE.search(proof):
        return _choice(choice[1], choice[2])
    refused = re.search(r"unrecognized arguments: (.+)|ambiguous option: (\S+)", proof)
    if refused is None:
        return None
    names = dict.fromkeys(name.replace("-", "_") for name in _OPTION.findall(refused[1] or refused[2]))
    told = [said for name in names if (said := _refused(name))][:TOLD]
    return "; ".join(told) + "." if told else None


def _choice(option: str, value: str) -> str | None:
    flag = find(option)
    spans = [shape.span for shape in flag.shapes if value in (shape.choices or ())] if flag else []
    if not spans:
        return None
    return (
        f"{value} came with SGLang {releases()[spans[0][0]]}: use that or a newer one, or one of the values "
        "that the line lists."
    )


def _refused(name: str) -> str:
    if name in OF_VLLM:
        return f"--{name.replace('_', '-')} is vLLM's name; SGLang's is {OF_VLLM[name]}"
    flag = find(name)
    if flag is None:
        near = nearest(name)
        return f"SGLang has no {name}; the nearest is {', '.join(near)}" if near else ""
    return _of_other_release(flag, name)


def _of_other_release(flag: Flag, name: str) -> str:
    option = "--" + name.replace("_", "-")
    spelling = next((s for s in flag.spellings if s.option == option), None)
    newest = spell(flag, releases()[-1])
    if spelling is not None and newest not in (None, option):
        last = releases()[spelling.spans[-1][1]]
        return f"{option} is known up to SGLang {last}; since {_first(flag, newest)} it is {newest}"
    if gone := known_until(flag):
        instead = f"; use {flag.instead}" if flag.instead else ""
        return f"{option} is known up to SGLang {gone}{instead}"
    return f"{option} came with SGLang {releases()[flag.shapes[0].span[0]]}; this is an older one"


def _first(flag: Flag, option: str | None) -> str:
    return next(str(releases()[s.spans[0][0]]) for s in flag.spellings if s.option == option)


def packages(proof: str) -> str | None:
    """
    What a library lacks: the driver's own functions are not mended by installing packages again.
    """
    if symbol := _DRIVER_SYMBOL.search(proof):
        return (
            f"The NVIDIA driver most likely lacks {symbol[1]}, which these kernels call: use a newer driver "
            "(580 for CUDA 13), or kernels made for the CUDA of this one (`nvidia-smi` names both)."
        )
    if "No module named 'sglang'" in proof:
        return (
            "SGLang is not installed for the Python that was started: give its interpreter (`python` of the "
            "host), activate its environment, or install it there."
        )
    if "ROCm" in proof:
        return (
            "Packages made for CUDA are installed on a machine with ROCm: use SGLang's image for ROCm, or "
            "build its kernels there. No memory flag matters, whatever the line proposes."
        )
    return None


def access(proof: str) -> str | None:
    """
    A port that only root may use, and a disk that nobody may write.
    """
    if "attempting to bind" in proof:
        return "Ports below 1024 are root's: choose another port."
    if "Read-only file system" in proof:
        return (
            "What the line names lies on a disk that is mounted read-only: point SGLang elsewhere (HF_HOME, "
            "TRITON_CACHE_DIR, TORCHINDUCTOR_CACHE_DIR and FLASHINFER_WORKSPACE_BASE move its caches)."
        )
    return None


def config(proof: str) -> str | None:
    """
    What is read from the model's config.json and is not there.
    """
    lacks = re.search(r"'\w+Config' object has no attribute '(\w+)'", proof)
    if lacks is None:
        return None
    return (
        f"Most likely the model's config.json lacks `{lacks[1]}`: compare it with the model's own on the "
        "hub. Where that lacks it too, the model and this SGLang (or its Transformers) are of different age."
    )


def crash(proof: str) -> str | None:
    """
    A crash that does not say whose it is, and a call that CUDA refused.
    """
    if re.search(r"exit code:? -\d|Exit code: -\d|Fatal Python error", proof):
        return (
            "Most likely a kernel crashed, though the line proves only that a process did, outside Python: "
            "use another attention_backend or SGLang version; `dmesg -T` may name the library."
        )
    if "invalid argument" in proof or "invalid configuration argument" in proof:
        return (
            "CUDA refused a call, most likely a kernel's that does not fit this card or shape; the trace "
            "above the line says which: use another backend for that part, or another SGLang version."
        )
    return None


def compilation(proof: str) -> str | None:
    """
    A kernel that does not compile because of its own code.
    """
    if "Mismatched type" not in proof and "CompilationError" not in proof:
        return None
    return (
        "A kernel's own code does not compile with this Triton, whatever the card: use another version of "
        "SGLang or the Triton that it pins, or another attention_backend. No memory flag matters."
    )


def spelled(text: str, proof: str, versions: tuple[str, ...]) -> str:
    """
    A remedy with its flags named as the releases do that may have written the log, and for the card at hand.
    """
    known = [version for one in versions or map(str, releases()) if (version := parse_version(one))]
    for name in RENAMED:
        flag = find(name)
        if flag is None or not re.search(rf"\b{name}\b", text):
            continue
        named = dict.fromkeys(_plain(option) for one in known if (option := spell(flag, one)))
        older = next((old for old in named if old != name), None)
        if older is None:
            continue
        alone = name not in named or older in proof.replace("-", "_")
        told = older if alone else f"{name} ({older} before 0.5.14)"
        text = re.sub(rf"\b{name}\b", told, text, count=1 if not alone else 0)
    rocm = "HIP" in proof or "ROCm" in proof
    return text.replace("nvidia-smi", "rocm-smi") if rocm else text


def _plain(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
