"""
The catalogue of SGLang's failures by subject: what a line means, with a real example of it.

EXCEPTIONS are searched in the last line (and the message lines after it) of a traceback that ended a
process; RECORDS in log records and in argparse's last line. Numbers in comments are those of the
catalogue of sglang-facts, section 3. Where a source says "torch", "CUDA", "Transformers" …, the text is
printed by that library under SGLang. A weight of 5 is an exception without a name here, 6 to 9 a name that
a further line of the same message may better; how a process ended weighs less than what it said before.
Among equals the first counts, in the order of the subjects below.

A pattern with `(in ` is also searched in the exception followed by the place that raised it, as in
`AssertionError (in init_kv_buffer: assert x)`: some of SGLang's checks have no words, some words of a
library say nothing without the place. What no words name is judged by SGLang's own files on the stack
(ORIGINS).
"""

from functools import lru_cache

from msgspec import Struct

from mtpdeploy.core.diagnosis import Signature
from mtpdeploy.engines.sglang.signatures import flags, gpus, kernels, memory, model, network, processes, shell
from mtpdeploy.engines.sglang.signatures.ordinary import (
    ORDINARY_DETOKENIZER,
    ORDINARY_PARENT,
    ORDINARY_SCHEDULER,
    SILENT,
    WARMUP,
)
from mtpdeploy.engines.sglang.signatures.origins import ORIGINS
from mtpdeploy.engines.sglang.versions import parse_version

__all__ = (
    "EXCEPTIONS",
    "NAMED",
    "ORDINARY_DETOKENIZER",
    "ORDINARY_PARENT",
    "ORDINARY_SCHEDULER",
    "ORIGINS",
    "PLACED",
    "RECORDS",
    "SIGNATURES",
    "SILENT",
    "WARMUP",
    "Catalogue",
    "catalogue_of",
)

NAMED = 10
"""The weight of a root cause with a name."""

EXCEPTIONS: tuple[Signature, ...] = (
    *memory.EXCEPTIONS,
    *flags.EXCEPTIONS,
    *kernels.EXCEPTIONS,
    *gpus.EXCEPTIONS,
    *model.EXCEPTIONS,
    *processes.EXCEPTIONS,
    *network.EXCEPTIONS,
)
"""What the exception that ended a process means."""

RECORDS: tuple[Signature, ...] = (
    *network.RECORDS,
    *flags.RECORDS,
    *kernels.RECORDS,
    *processes.RECORDS,
)
"""What a log record, or a bare line outside any traceback, means."""

PLACED: tuple[Signature, ...] = tuple(s for s in EXCEPTIONS if r" \(in " in s.pattern)
"""Those that name the place in which an exception was raised."""

SIGNATURES: tuple[Signature, ...] = EXCEPTIONS + RECORDS + ORIGINS + shell.SHELL
"""The whole catalogue."""


class Catalogue(Struct, frozen=True):
    """
    What can be printed by one release; see EXCEPTIONS, PLACED, RECORDS and ORIGINS.
    """

    exceptions: tuple[Signature, ...]
    placed: tuple[Signature, ...]
    records: tuple[Signature, ...]
    origins: tuple[Signature, ...]


@lru_cache(maxsize=32)
def catalogue_of(version: str) -> Catalogue:
    """
    The signatures whose wording a release has; all of them where the version is no release (`""`, a fork).
    """
    return Catalogue(
        *(tuple(s for s in part if _has(version, s)) for part in (EXCEPTIONS, PLACED, RECORDS, ORIGINS))
    )


def _has(version: str, signature: Signature) -> bool:
    known = parse_version(version)
    if known is None:
        return True
    first, last = (parse_version(bound) for bound in signature.versions)
    return (first is None or known.release >= first.release) and (
        last is None or known.release <= last.release
    )
