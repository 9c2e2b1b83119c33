"""
Which configuration is tried next: decided by cause, never by attempt number.
"""

from collections.abc import Callable, Collection

from msgspec import Struct, structs

from mtpdeploy.core.diagnosis import Cause, Next, Stage, Verdict
from mtpdeploy.core.outcome import Ascent, Outcome
from mtpdeploy.core.server import ServerSpec, changes

REPEATS = 2
"""How often the same configuration is tried again for a cause that passes by itself (house, section 3)."""

GUESSES = 2
"""How often a failure that nobody knows is met with a guess in one ascent: it may cost two starts."""

NARROWEST = 0.005
"""
Two values of a fraction nearer than this are the same one: 0.5 GiB of a 96 GB card, about what the
free memory of two starts differs in (public reports, section 4, items 3 and 20).
"""


class Rung(Struct, frozen=True):
    """
    One named concession.

    `causes` are those it answers; `gives_up` says in a few words what the user loses by it. `change`
    is pure: it returns the conceded server, or None where this rung has nothing (more) to give for
    that server, version or verdict. One rung may be taken several times as long as it changes
    something (`max_running_requests` 512 → 48 → 16).

    `moves` names a flag holding a fraction that this rung moves, upwards where `up`. What earlier
    attempts proved about that flag, all else being equal, then bounds the move (see `next_step`).
    What a `guess` answers proves nothing about any flag.
    """

    name: str
    causes: frozenset[Cause]
    gives_up: str
    change: Callable[[ServerSpec, Verdict, str], ServerSpec | None]
    moves: str = ""
    up: bool = False
    guess: bool = False


class Ladder(Struct, frozen=True):
    """
    The rungs allowed, cheapest concession first.
    """

    name: str
    rungs: tuple[Rung, ...]


UNGUESSABLE = (Stage.LAUNCHED, Stage.ARGUMENTS, Stage.WEIGHTS_BEGUN)
"""Stages at which no flag that a guess moves has mattered yet."""


class Step(Struct, frozen=True):
    """
    What to do after a failed attempt.

    `server` is what to run next, or None to give up; `rung` names the concession (None when the
    same configuration is repeated); `reason` says why in one sentence.
    """

    server: ServerSpec | None
    rung: str | None
    reason: str


def next_step(ladder: Ladder, ascent: Ascent, version: str) -> Step:
    """
    Choose the cheapest rung that answers the last verdict; pure.

    A cause that no configuration can cure stops; any other climbs; one that may pass by itself and
    that no rung answers repeats the same server, at most `REPEATS` times. The same configuration is
    never tried twice for the same cause, and rungs that answer other causes are passed over: the two
    out-of-memory errors have opposite cures. A fraction that one rung raises and another lowers stays
    strictly between the largest value proven too low and the smallest proven too high for the same
    rest of the configuration; where no value is left between them, both rungs are passed over.
    A failure that nobody knows is met with a guess, where the weights had been loaded, at most `GUESSES`
    times, and never again for what the last guess did not change.
    `version` is the SGLang version on the box.

    Raises:
        ValueError: the last attempt has no verdict.
    """
    last = ascent.outcomes[-1]
    if last.verdict is None:
        raise ValueError("the last attempt has no verdict")
    verdict = last.verdict
    if verdict.next is Next.STOP:
        return Step(None, None, f"no configuration cures this: {verdict.cause}")
    if verdict.next is Next.GUESS:
        return _guess(ladder, ascent, verdict, version)
    step = _climb(ladder, ascent, verdict, version)
    if step.server is None and verdict.next is Next.REPEAT:
        return _repeat(ascent, verdict)
    return step


def answering(
    ladder: Ladder, verdict: Verdict, server: ServerSpec | None, versions: Collection[str]
) -> tuple[Rung, ...]:
    """
    The rungs that answer a verdict and change something of the server that failed, cheapest first.

    Of a server that is not known (None) those that answer the cause; of `versions` it may be any. None
    where the verdict stops, or where only a guess is left and nothing that it moves has mattered yet.
    """
    if verdict.next is Next.STOP or (verdict.next is Next.GUESS and verdict.stage in UNGUESSABLE):
        return ()
    named = [rung for rung in ladder.rungs if verdict.cause in rung.causes]
    if server is None:
        return tuple(named)
    does = [any(rung.change(server, verdict, one) is not None for one in versions) for rung in named]
    return tuple(rung for rung, changes_it in zip(named, does, strict=True) if changes_it)


def _repeat(ascent: Ascent, verdict: Verdict) -> Step:
    last = ascent.outcomes[-1]
    same = [o for o in ascent.tried(verdict.cause) if o.server == last.server]
    if len(same) > REPEATS:
        return Step(None, None, f"still the same after {REPEATS} repeats: {verdict.cause}")
    return Step(
        last.server, None, f"the same configuration again, since this passes by itself: {verdict.cause}"
    )


def _guess(ladder: Ladder, ascent: Ascent, verdict: Verdict, version: str) -> Step:
    last = ascent.outcomes[-1]
    if last.stage in UNGUESSABLE:
        return Step(None, None, f"nothing is known that could help: {verdict.cause}")
    unknown = [o.verdict for o in ascent.outcomes if o.verdict is not None and o.verdict.next is Next.GUESS]
    if len(unknown) > GUESSES:
        return Step(None, None, f"still unknown after {GUESSES} guesses: {verdict.cause}")
    if any(before.proof == verdict.proof for before in unknown[:-1]):
        return Step(None, None, f"a guess did not change it: {verdict.cause}")
    step = _climb(ladder, ascent, verdict, version)
    return step if step.server is None else structs.replace(step, reason=f"a guess: {step.reason}")


def _climb(ladder: Ladder, ascent: Ascent, verdict: Verdict, version: str) -> Step:
    last = ascent.outcomes[-1]
    for rung in ladder.rungs:
        if verdict.cause not in rung.causes:
            continue
        conceded = rung.change(last.server, verdict, version)
        if conceded is not None and rung.moves:
            conceded = _between(conceded, rung.moves, *_proven(ladder, ascent, rung.moves, conceded))
        if conceded is None or any(o.server == conceded for o in ascent.outcomes):
            continue
        what = ", ".join(str(c) for c in changes(last.server, conceded))
        return Step(conceded, rung.name, f"{what}: answers “{verdict.cause}”; gives up {rung.gives_up}")
    return Step(None, None, f"no rung is left that answers this: {verdict.cause}")


def _proven(
    ladder: Ladder, ascent: Ascent, flag: str, conceded: ServerSpec
) -> tuple[float | None, float | None]:
    """
    The largest value of a flag proven too low, and the smallest proven too high, all else as conceded.
    """
    raised = {c for rung in ladder.rungs if rung.moves == flag and rung.up for c in rung.causes}
    lowered = {
        c for rung in ladder.rungs if rung.moves == flag and not (rung.up or rung.guess) for c in rung.causes
    }
    rest = conceded.with_flags(**{flag: None})
    low: float | None = None
    high: float | None = None
    for outcome in ascent.outcomes:
        value = _value(outcome, flag)
        if value is None or outcome.verdict is None or outcome.server.with_flags(**{flag: None}) != rest:
            continue
        if outcome.verdict.cause in raised:
            low = value if low is None else max(low, value)
        elif outcome.verdict.cause in lowered:
            high = value if high is None else min(high, value)
    return low, high


def _value(outcome: Outcome, flag: str) -> float | None:
    """
    What an attempt ran with: the flag as given, else as the log printed it.
    """
    given = outcome.server.number(flag)
    if given is None and outcome.verdict is not None:
        return outcome.verdict.figures.get(flag)
    return given


def _between(conceded: ServerSpec, flag: str, low: float | None, high: float | None) -> ServerSpec | None:
    value = conceded.number(flag)
    if value is None:
        return conceded
    lowest = -1.0 if low is None else round(low + NARROWEST, 6)
    highest = 2.0 if high is None else round(high - NARROWEST, 6)
    if lowest <= value <= highest:
        return conceded
    if low is None or high is None or lowest > highest:
        return None
    middle = round((low + high) / 2, 3)
    return conceded.with_flags(**{flag: middle}) if lowest <= middle <= highest else None
