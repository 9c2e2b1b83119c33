"""What the simulated model says, and how many of its drafts are right."""

from __future__ import annotations

from typing import Any, Dict, List

OPENING = "[simulated by mtpdeploy's demo box] No model produced this text."
SENTENCES = (
    "the draft proposes, the target verifies, and what both agree on is kept; a state pool, not the "
    "key-value cache, limits how many requests run at once; a smaller slack leaves less room for graphs; "
)
WORDS = SENTENCES.split()
# Chance that the first draft token is right, and what each further one loses: 2.9 tokens with three steps.
FIRST_CHANCE, FADE = 0.81, 0.96
SHORTEST, LONGEST = 60, 180  # tokens of an answer that nothing else ends


def tokens_of(text: str) -> int:
    """About how many tokens a text has: four characters each."""
    return max(1, (len(text) + 3) // 4)


def text_between(start: int, end: int) -> str:
    """The words of output tokens start to end: one word a token after the opening."""
    words = [OPENING if index == 0 else WORDS[(index - 1) % len(WORDS)] for index in range(start, end)]
    return ("" if start == 0 else " ") + " ".join(words) if words else ""


def flatten(messages: object) -> str:
    """The text of chat messages, whatever form their content has."""
    parts: List[str] = []
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else message
        if isinstance(content, list):
            parts += [str(part.get("text") or "") for part in content if isinstance(part, dict)]
        else:
            parts.append(str(content or ""))
    return "\n".join(parts)


def chance_for(wanted: float, steps: int) -> float:
    """The chance of each draft token with which a verify yields so many tokens, the bonus token included."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        mean = sum(middle**step for step in range(steps + 1))
        low, high = (middle, high) if mean < wanted else (low, middle)
    return low


class Drafts:
    """A seeded draft model: how many of its tokens each verify accepts."""

    def __init__(self, seed: int, steps: int, *, useless: bool, wanted: float = 0.0) -> None:
        import random  # noqa: PLC0415  # slow to import, and only the scheduler draws

        self.random = random.Random(seed)
        self.chances = [] if useless else [FIRST_CHANCE * FADE**step for step in range(steps)]
        if wanted and not useless:
            self.chances = [chance_for(wanted, steps)] * steps

    def accepted(self) -> int:
        """Tokens one verify yields, the bonus token included (at least 1)."""
        count = 1
        for chance in self.chances:
            if self.random.random() >= chance:
                break
            count += 1
        return count

    def answer_length(self) -> int:
        """How long an answer gets on its own."""
        return self.random.randint(SHORTEST, LONGEST)


def sampling(body: Dict[str, Any]) -> Dict[str, Any]:
    """The sampling fields of a /generate or OpenAI request, under one set of names."""
    inner = body.get("sampling_params") or {}
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or inner.get("max_new_tokens")
    return {
        "max_new_tokens": int(limit) if limit else None,
        "ignore_eos": bool(body.get("ignore_eos") or inner.get("ignore_eos")),
    }
