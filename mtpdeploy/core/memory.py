"""
What a server will ask of one GPU, line by line, beside what the GPU has: the forecast of a start.
"""

from enum import StrEnum

from msgspec import Struct

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.core.server import FlagValue


class Fit(StrEnum):
    """
    Whether a server will start. CLOSE: what is measured rather than derived decides, within its uncertainty.
    """

    FITS = "fits"
    CLOSE = "close"
    DOES_NOT_FIT = "does not fit"


class Line(Struct, frozen=True):
    """
    One line of a budget, in bytes on one GPU.

    `uncertainty` is 0 where the line follows from formulas, else how far a measured estimate may be off.
    """

    name: str
    amount: int
    uncertainty: int = 0
    note: str = ""


class Fewer(Struct, frozen=True):
    """
    A smaller `max_running_requests` under which more requests run at a time: `asked` for, and `runs` of them.
    """

    asked: int
    runs: int


class Forecast(Struct, frozen=True):
    """
    One server on one card under one SGLang version.

    `lines` add up to `total` and come in the order in which SGLang claims them; where the server does not
    fit, a negative last line says what is lacking. `error` is the text SGLang would raise, None where it
    would raise none, and `cause` what that text (or an estimate) means. `left` is what graphs and
    activations find free after all pools, `needed` what they are estimated to take. `pool_margin` is how
    much less memory there may be until the pools are refused (negative: how much is lacking, the whole card
    where no memory would do), `graph_margin` the same for graphs and activations, or for a draft that loads
    beside the pools, whichever is less, and `graph_uncertainty` how far that may be off. `host_needed` is
    what the hierarchical cache pins in host memory. `figures` are further numbers by name, `verdict_figures`
    those that rungs ask of a verdict; `notes` say what the forecast rests on. `fewer`
    is what asking for fewer requests would give, None where it is no more or not looked for.
    """

    version: str
    fit: Fit
    reason: str
    total: int
    free: int
    lines: tuple[Line, ...]
    mem_fraction_static: float
    error: str | None = None
    cause: Cause | None = None
    max_mamba_cache_size: int = 0
    slots_per_request: int = 1
    max_running_requests: int = 0
    kv_tokens: int = 0
    left: int = 0
    needed: int = 0
    needed_uncertainty: int = 0
    pool_margin: int = 0
    graph_margin: int = 0
    graph_uncertainty: int = 0
    host_needed: int = 0
    figures: dict[str, float] = {}
    verdict_figures: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    fewer: Fewer | None = None

    @property
    def likely(self) -> bool:
        """
        Whether it is more likely to start than not: the estimates themselves, taken as exact, leave room.
        """
        return self.fit is Fit.FITS or (
            self.fit is Fit.CLOSE and self.error is None and self.graph_margin >= 0
        )

    def amount(self, name: str) -> int:
        """
        The bytes of a line, 0 where there is none of that name.
        """
        return sum(line.amount for line in self.lines if line.name == name)


class Card(Struct, frozen=True):
    """
    What a server runs on, one GPU of it.

    `total_mib` is what nvidia-smi calls its memory, `reserved_mib` what CUDA never hands out of it. `unused`
    are the bytes that nobody holds before the server starts, `free` those before it loads its weights (`avail
    mem` at SGLang's `Load weight begin`); None where they are to be estimated. `capability` is the compute
    capability. `host_free` and `host_limit` are bytes of host memory: free, and what the control group
    allows.
    """

    total_mib: int
    free: int | None = None
    capability: str = ""
    host_free: int | None = None
    host_limit: int | None = None
    reserved_mib: int = 0
    unused: int | None = None


class Weights(Struct, frozen=True):
    """
    Bytes of weights of all GPUs together; None where they follow from the model's shape.
    """

    target: int | None = None
    draft: int | None = None


class Seen(Struct, frozen=True):
    """
    What a start on the same box, of the same model and version, showed; bytes on one GPU, None where it did
    not get so far.

    `free` before the weights, `weights` and `draft` as they loaded, `graphs` what all captures took together
    and for how many tokens the largest decode batch was (`graph_tokens`). `under` has the flags of that start
    which decide a figure, by the figure's name: under others it says nothing.
    """

    free: int | None = None
    weights: int | None = None
    draft: int | None = None
    graphs: int | None = None
    graph_tokens: int = 0
    under: dict[str, dict[str, FlagValue]] = {}
