"""
What each cause calls for, and what a person can do about it.

CLIMB: another configuration may help. REPEAT: it may pass by itself, so the same again (where a rung
answers it, that rung first). GUESS: nothing is known, and the ladder may guess. STOP: only the user can
help. Source of the directions: sglang-facts,
section 3, column "retry with other config helps".
"""

from msgspec import structs

from mtpdeploy.core.diagnosis import Cause, Knowledge
from mtpdeploy.engines.sglang import quotes
from mtpdeploy.engines.sglang.causes import flags, hardware, memory, model, running, shell

KNOWLEDGE: dict[Cause, Knowledge] = {
    cause: structs.replace(known, spelled=quotes.spelled)
    for subject in (memory, flags, hardware, model, running, shell)
    for cause, known in subject.KNOWLEDGE.items()
}
"""One entry for every cause."""
