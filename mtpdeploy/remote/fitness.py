"""
Whether a box can hold a server at all: each question a pure function of its facts, each answer an error.
"""

import re
from collections.abc import Collection

from mtpdeploy.core.foreign import decoded
from mtpdeploy.core.machine import Facts, Host
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.core.units import MIB, gib
from mtpdeploy.errors import BoxUnfit, MtpDeployError
from mtpdeploy.onbox.model import INDEX_FILE

LEAST_FREE_BYTES = 64 * MIB
"""Free disk for a run: the log of a start is under 1 MiB (real starts of 0.5.12 and 0.5.23)."""

NO_CARD = "No devices were found"
"""What nvidia-smi prints, with status 6, where the driver works and there is no card."""

FULL = ("No space left on device", "Disk quota exceeded")
"""How the system calls a full disk (ENOSPC, EDQUOT)."""


SAFETENSORS = ("auto", "safetensors", "fastsafetensors")
"""
Values of `load_format` that read a folder's *.safetensors (DefaultModelLoader, 0.5.6-0.5.23); a checkpoint
without any is read otherwise, and others make weights up or read other files.
"""

MTP_LAYERS = re.compile(r'"mtp_num_hidden_layers"\s*:\s*[1-9]')
"""In the config.json of a model that was trained with layers of multi-token prediction (Qwen3.5 and 3.6)."""


def unfit(facts: Facts, host: Host, server: ServerSpec) -> MtpDeployError | None:
    """
    The first thing that is missing, in the order in which a user has to mend them; None where all is there.
    """
    try:
        require_python(facts, host)
        if server.flags.get("device") != "cpu":
            require_gpu(facts, host, server.gpus)
        require_sglang(facts, host)
        require_model(facts, host)
        require_weights(facts, host, server)
        require_secrets(facts, host, server.secrets)
        require_disk(facts, host)
        require_work_dir(facts, host)
    except BoxUnfit as error:
        return error
    return None


def require_python(facts: Facts, host: Host) -> None:
    """
    Raises:
        BoxUnfit: no Python that works; says where it was looked for.
    """
    if facts.python is not None:
        return
    if host.python:
        found = _with_sglang(facts)
        raise BoxUnfit(
            f"the Python configured for `{host.name}` does not work on it: {host.python}",
            hint=f'this one has sglang: `python = "{found}"`' if found else _looked(facts),
        )
    raise BoxUnfit(
        f"`{host.name}` has no Python of version 3.8 or later that can be found",
        hint=f"install python3 there, or set `python` of the host in hosts.toml\n{_looked(facts)}",
    )


def require_sglang(facts: Facts, host: Host) -> None:
    """
    Raises:
        BoxUnfit: no SGLang in the Python that is to be used; says where it was looked for.
    """
    if facts.sglang_version is not None:
        return
    if host.python:
        found = _with_sglang(facts)
        raise BoxUnfit(
            f"sglang is not installed for the Python configured for `{host.name}`: {host.python}",
            hint=f'this one has it: `python = "{found}"`' if found else _install(facts),
        )
    raise BoxUnfit(
        f"none of the Pythons found on `{host.name}` has sglang",
        hint=f"{_install(facts)}\nor set `python` of the host in hosts.toml\n{_looked(facts)}",
    )


def require_gpu(facts: Facts, host: Host, wanted: Collection[int] = ()) -> None:
    """
    Raises:
        BoxUnfit: nvidia-smi is absent, fails, hangs or shows no card, or a wanted card is not there.
    """
    if facts.nvidia_smi == "absent":
        raise BoxUnfit(
            f"`{host.name}` has no GPU that can be seen: there is no nvidia-smi",
            hint="rent a machine with an NVIDIA GPU, or start the container with its GPUs",
        )
    if NO_CARD in facts.nvidia_smi or (facts.nvidia_smi == "ok" and not facts.gpus):
        raise BoxUnfit(
            f"nvidia-smi shows no GPU on `{host.name}`",
            hint="rent a machine with an NVIDIA GPU, or start the container with its GPUs",
        )
    if facts.nvidia_smi != "ok":
        raise BoxUnfit(
            f"nvidia-smi does not work on `{host.name}`: {facts.nvidia_smi}",
            hint="the driver of this machine is broken: restart it, or rent another one",
        )
    there = {gpu.index: gpu for gpu in facts.gpus}
    missing = sorted(set(wanted) - set(there))
    if missing:
        cards = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in facts.gpus)
        raise BoxUnfit(
            f"`{host.name}` has no GPU {', '.join(map(str, missing))}",
            hint=f"it has {cards}: choose with `--gpu`",
        )


def require_model(facts: Facts, host: Host) -> None:
    """
    Raises:
        BoxUnfit: the model's folder is absent, or its config.json describes none. A hub name is left to the
            hub.
    """
    model = facts.model
    if model is None or (not model.is_local and not model.exists):
        return
    if not model.exists:
        raise BoxUnfit(
            f"the model is not on `{host.name}`: no folder {model.path}",
            hint="put it there, or set `model_path` to where it is or to a hub name such as `org/model`",
        )
    if not model.is_local:
        return
    if model.config is None:
        raise BoxUnfit(
            f"the model's folder on `{host.name}` has no config.json: {model.path}",
            hint="`model_path` has to name the folder that holds config.json and the weights",
        )
    problem = _no_config(model.config)
    if problem:
        raise BoxUnfit(
            f"config.json of the model on `{host.name}` describes no model: {problem}",
            hint=f"download it again into {model.path}",
        )


def _no_config(text: str) -> str:
    """
    Why Transformers can make nothing at all of a config.json; empty where it may.
    """
    if text.startswith("\ufeff"):
        return "it begins with a byte order mark, which Transformers does not read"
    try:
        config = decoded(text)
    except ValueError as error:
        return f"it is no JSON: {error}"
    if not isinstance(config, dict):
        return "it is no JSON object"
    if not config.get("architectures") and not config.get("model_type"):
        return "it has neither `architectures` nor `model_type`"
    return ""


def require_weights(facts: Facts, host: Host, server: ServerSpec) -> None:
    """
    Raises:
        BoxUnfit: the weights in the model's folder are incomplete or damaged, and are to be read from there.
    """
    model = facts.model
    if model is None or not model.is_local or server.flags.get("load_format", "auto") not in SAFETENSORS:
        return
    again = f"download them again into {model.path}"
    if model.index_damaged:
        raise BoxUnfit(
            f"the index of the model's weight files on `{host.name}` cannot be read: {INDEX_FILE}",
            hint=f"it has to be a JSON object with a `weight_map`: download it again into {model.path}",
        )
    if model.missing_files:
        count = len(model.missing_files)
        raise BoxUnfit(
            f"the model on `{host.name}` lacks {count} of its weight files: {_named(model.missing_files)}",
            hint=again,
        )
    if model.damaged_files:
        raise BoxUnfit(
            f"weight files of the model on `{host.name}` are cut short: {_named(model.damaged_files)}",
            hint=f"{again}: each has no header of a safetensors file, or is shorter than it says",
        )


def _named(files: Collection[str]) -> str:
    return ", ".join(list(files)[:3]) + (" …" if len(files) > 3 else "")


def require_mtp(facts: Facts, host: Host, server: ServerSpec) -> None:
    """
    Raises:
        BoxUnfit: the model is to draft for itself, and its checkpoint has no tensors for that. SGLang starts
            with such a one without a word and accepts nothing (0.5.6-0.5.23, catalogue number 66).
    """
    model, mtp = facts.model, server.mtp
    if model is None or mtp is None or model.has_mtp is not False or not drafts_for_itself(server):
        return
    if model.config is None or not MTP_LAYERS.search(model.config):
        return
    raise BoxUnfit(
        f"the model on `{host.name}` has no tensors for multi-token prediction: {model.path}",
        hint="take a checkpoint whose index has names that begin with `mtp.`; `--allow-no-mtp` starts it all"
        " the same, and every draft will be rejected",
    )


def drafts_for_itself(server: ServerSpec) -> bool:
    """
    Whether a server speculates with the model's own layers of multi-token prediction.
    """
    mtp = server.mtp
    if mtp is None or mtp.algorithm.upper() not in ("NEXTN", "EAGLE"):
        return False
    return mtp.draft_model_path in (None, server.model_path)


def require_secrets(facts: Facts, host: Host, names: Collection[str]) -> None:
    """
    Raises:
        BoxUnfit: the file of secrets cannot be sourced, can be read by others, or lacks a wanted name.
    """
    found = facts.secrets
    if not names or found is None:
        return
    missing = [name for name in names if name not in found.given]
    example = f"`{(missing or list(names))[0]}='…'`"
    if not found.exists and missing:
        raise BoxUnfit(
            f"`{host.name}` has no file of secrets at {found.path}, but {', '.join(missing)} is wanted",
            hint=f"write {example} there, one name a line, then `chmod 600 {found.path}`",
        )
    if not found.exists:
        return
    if found.problem or not found.mine:
        raise BoxUnfit(
            f"the file of secrets on `{host.name}` cannot be used: {found.path}:"
            f" {found.problem or f'it belongs to {found.owner}'}",
            hint=f"make it a file of {facts.user} alone: `chown {facts.user}` and `chmod 600` it",
        )
    if found.mode & 0o077:
        mode = f"{found.mode:04o}"
        raise BoxUnfit(
            f"the file of secrets on `{host.name}` can be read by others: {found.path} (mode {mode})",
            hint=f"on the box: chmod 600 {found.path}",
        )
    if found.line is not None:
        where = f", line {found.line}" if found.line else ""
        raise BoxUnfit(
            f"the file of secrets on `{host.name}` is no text that sh can read: {found.path}{where}",
            hint=f"see `sh -n {found.path}` there; a quote that is never closed is noticed further down",
        )
    if missing:
        raise BoxUnfit(
            f"the file of secrets on `{host.name}` gives no value to {', '.join(missing)}: {found.path}",
            hint=f"add a line such as {example}, or take the name out of `secrets` of the server",
        )


def require_disk(facts: Facts, host: Host, least: int = LEAST_FREE_BYTES) -> None:
    """
    Raises:
        BoxUnfit: the disk of the work directory is full, or nearly.
    """
    if facts.disk_free_bytes >= least and not facts.work_dir_problem.startswith(FULL):
        return
    raise BoxUnfit(
        f"the disk of `{host.name}` is full: {gib(facts.disk_free_bytes)} free at {facts.work_dir}",
        hint="make room there, or set `work_dir` of the host in hosts.toml to another disk",
    )


def require_work_dir(facts: Facts, host: Host) -> None:
    """
    Raises:
        BoxUnfit: a run cannot be made in the work directory.
    """
    if not facts.work_dir_writable:
        raise BoxUnfit(
            f"the work directory on `{host.name}` cannot be written: {facts.work_dir_problem}",
            hint="mend that path there (its owner, its mode, or what stands in its place),\n"
            f"or set `work_dir` of the host in hosts.toml to another folder (now {facts.work_dir})",
        )


def _with_sglang(facts: Facts) -> str | None:
    found = (entry.rpartition(": sglang ")[0] for entry in facts.pythons if ": sglang " in entry)
    return next(found, None)


def _install(facts: Facts) -> str:
    return f"install it: `{facts.python or 'python3'} -m pip install sglang`"


def _looked(facts: Facts) -> str:
    there = [entry for entry in facts.pythons if not entry.endswith(": not there")]
    absent = [entry.removesuffix(": not there") for entry in facts.pythons if entry.endswith(": not there")]
    said = f"looked at {'; '.join(there)}" if there else "looked everywhere a Python may be"
    return f"{said}\nnothing at {', '.join(absent)}" if absent else said
