"""
A plan without a box: a model, a card and a version as the command line gives them.
"""

import re
from math import isfinite
from pathlib import Path

from msgspec import Struct

from mtpdeploy.core.cards import find_card, near_cards
from mtpdeploy.core.machine import ModelFacts
from mtpdeploy.core.memory import Card, Seen, Weights
from mtpdeploy.core.model import ModelShape, NotAModel, read_model
from mtpdeploy.core.units import GIB
from mtpdeploy.deploy.planner import weights_of
from mtpdeploy.errors import ConfigError
from mtpdeploy.onbox.model import contents

LONGEST_CONFIG = 1 << 20
"""Bytes of a config.json at most; the longest real ones have some 50,000."""

MOST_GIB = 1 << 20
"""A pebibyte: more than any model or machine has (a rack of 72 cards of 288 GB has 20 TB)."""

MOST_MIB = 1 << 24
"""16 TiB in one card: fifty times the largest (see `core/cards.py`)."""

VERSION = re.compile(r"v?\d+(\.\w+)*([+-][\w.]+)?", re.ASCII)
"""0.5.14, 0.5.13.post1, 0.0.0.dev1+g5f55db35e."""


class Given(Struct, frozen=True):
    """
    The options of `plan` that stand in for a box.
    """

    model: str | None = None
    weights_gib: float | None = None
    draft_gib: float | None = None
    gpu: str | None = None
    gpu_mib: int | None = None
    free_gib: float | None = None
    sglang: str | None = None


def given_model(given: Given) -> tuple[ModelShape, Weights]:
    """
    The shape and the weights of the model that `--model` names: a folder, or a config.json.

    Raises:
        ConfigError: there is no such file, or it describes no model.
    """
    path = Path(given.model or "").expanduser()
    file = path / "config.json" if path.is_dir() else path
    try:
        shape = read_model(_text(file))
    except NotAModel as error:
        raise ConfigError(
            f"`--model`: {file} describes no model: {error}",
            hint="give the config.json of the checkpoint, as it comes from the Hugging Face hub",
        ) from None
    return shape, _weights(path, shape)


def _text(file: Path) -> str:
    """
    What a config.json says, without the mark that some editors put before it.
    """
    reason = "it is no regular file"
    try:
        # A pipe would be waited for, and a device may have no end.
        if file.is_file() or not file.exists():
            with file.open("rb") as content:
                return content.read(LONGEST_CONFIG).decode("utf-8-sig")
    except UnicodeDecodeError:
        reason = "it is no UTF-8 text"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise ConfigError(
        f"`--model`: {file} cannot be read: {reason}",
        hint="give a model's folder, or its config.json; `--on HOST` reads the one on the box",
    )


def _weights(path: Path, shape: ModelShape) -> Weights:
    if not path.is_dir():
        return Weights()
    told = contents(str(path))
    facts = ModelFacts(
        path=str(path),
        is_local=True,
        exists=True,
        has_mtp=told["has_mtp"],
        weight_bytes=told["weight_bytes"],
        mtp_bytes=told["mtp_bytes"],
    )
    return weights_of(facts, shape)


def given_loads(given: Given) -> Seen:
    """
    The weights as SGLang printed them, which is what they take of one GPU.

    Raises:
        ConfigError: sizes that cannot be.
    """
    return Seen(
        weights=_bytes("--weights-gib", given.weights_gib), draft=_bytes("--draft-gib", given.draft_gib)
    )


def given_version(given: Given) -> str | None:
    """
    The version that `--sglang` names; None where none is.

    Raises:
        ConfigError: a text that is no version.
    """
    if given.sglang and not VERSION.fullmatch(given.sglang):
        raise ConfigError(f"`--sglang {given.sglang}` is no version", hint="write it as in `--sglang 0.5.14`")
    return given.sglang


def given_card(given: Given) -> Card:
    """
    The card that `--gpu` names or `--gpu-mib` describes.

    Raises:
        ConfigError: none is named, or one that is not in the table, or sizes that cannot be.
    """
    free = _bytes("--free-gib", given.free_gib)
    if given.gpu and given.gpu_mib is not None:
        raise ConfigError("`--gpu` and `--gpu-mib` both describe a card", hint="keep one of the two")
    if given.gpu_mib is not None:
        hint = "`nvidia-smi` shows it as memory.total"
        if given.gpu_mib <= 0:
            raise ConfigError("`--gpu-mib` has to be above 0", hint=hint)
        if given.gpu_mib > MOST_MIB:
            raise ConfigError(f"`--gpu-mib` cannot be more than {MOST_MIB:,}", hint=hint)
        return _checked(Card(total_mib=given.gpu_mib, free=free, reserved_mib=500))
    if not given.gpu:
        raise ConfigError(
            "a plan needs a box or a card", hint="name a box with `--on`, or a card with `--gpu rtx-pro-6000`"
        )
    known = find_card(given.gpu)
    if "," in given.gpu:
        raise ConfigError(
            f"`--gpu {given.gpu}` names several cards, and a plan is for one",
            hint="give one of them; a server over several of a kind has `--set tp_size=N`",
        )
    if known is None:
        near = ", ".join(f"`{name}`" for name in near_cards(given.gpu))
        raise ConfigError(
            f"`--gpu`: there is no card `{given.gpu}` in the table",
            hint=f"near ones are {near}; `--gpu list` has all; others by `--gpu-mib N`",
        )
    return _checked(Card(known.total_mib, free, known.capability, reserved_mib=known.reserved_mib))


def _checked(card: Card) -> Card:
    if card.free is not None and card.free > card.total_mib << 20:
        raise ConfigError(
            f"`--free-gib` is more than the card has ({card.total_mib / 1024:.2f} GiB)",
            hint="it is what SGLang prints as `avail mem` at `Load weight begin`",
        )
    return card


def _bytes(option: str, gib: float | None) -> int | None:
    if gib is None:
        return None
    hint = "it is counted in GiB, as SGLang prints it"
    if not isfinite(gib):
        raise ConfigError(f"`{option}` cannot be {gib}", hint=hint)
    if gib <= 0:
        raise ConfigError(f"`{option}` has to be above 0", hint=hint)
    if gib > MOST_GIB:
        raise ConfigError(f"`{option}` cannot be more than {MOST_GIB:,}", hint=hint)
    return max(1, int(gib * GIB))
