"""
Remedies with the figures that a failure printed; each returns None where the log lacks one it needs.

What they advise is what the rungs do, by the same arithmetic. Figures are those of `matching` and of the
reading; memory is told in MiB or GiB as torch and SGLang print it.
"""

from collections.abc import Mapping

from mtpdeploy.engines.sglang.memory_concessions import FRACTION, HIGHEST_FRACTION, lacking, lowered
from mtpdeploy.engines.sglang.server_args import (
    HIERARCHICAL_CACHE,
    POOLS_DONE,
    RADIX_CACHE,
    SPECULATES,
    STATE,
)

Figures = Mapping[str, float]


def smaller_pools(figures: Figures) -> str | None:
    """
    An allocation failed among the pools.
    """
    if figures.get(STATE) == 0:
        return _lower_fraction(figures, "end what else holds the GPU's memory (nvidia-smi)")
    return _lower_fraction(figures, "ask for fewer running requests")


def smaller_graphs(figures: Figures) -> str | None:
    """
    An allocation failed while graphs were captured.
    """
    if figures.get("capturing_prefill"):
        return _lower_fraction(
            figures, 'do without the graphs of prefill (cuda_graph_backend_prefill = "disabled")'
        )
    return _lower_fraction(figures, "capture smaller graphs (cuda_graph_max_bs_decode)")


def smaller_chunks(figures: Figures) -> str | None:
    """
    An allocation failed while requests were running.
    """
    return _lower_fraction(figures, "lower chunked_prefill_size: activations need room beside the pools")


def _lower_fraction(figures: Figures, otherwise: str) -> str | None:
    """
    By how much an allocation after the weights says that the fraction is too high, and what else helps.
    """
    short, fraction = _short(figures), figures.get(FRACTION)
    if short is None or not figures.get("total_mib"):
        return None
    if fraction is None:
        return f"{short} Lower mem_fraction_static by {lacking(figures):.3g} or more, or {otherwise}."
    to = lowered(fraction, figures)
    if to is None:
        return (
            f"{short} Lowering mem_fraction_static ({fraction:g}) alone cannot free that much; {otherwise}."
        )
    by = f"by {round(fraction - to, 3):g} or more (to {to:g} or less)"
    return f"{short} Lower mem_fraction_static {by}, or {otherwise}."


def weights(figures: Figures) -> str | None:
    """
    An allocation failed while the weights were loaded.
    """
    short, total = _short(figures), figures.get("total_mib")
    if short is None or total is None:
        return None
    return (
        f"{short} The GPU has {_memory(total)}: end what else holds it (nvidia-smi), use a "
        "quantised model or "
        "more GPUs (tp_size). mem_fraction_static does not matter."
    )


def draft_weights(figures: Figures) -> str | None:
    """
    An allocation failed while the draft was loaded: beside the pools (to 0.5.13), or before them.
    """
    short = _short(figures)
    if short is None:
        return None
    if POOLS_DONE in figures:
        needs = "use a quantised model; the draft needs more at its load than it keeps"
        return _lower_fraction(figures, needs)
    if "weights_gib" in figures:
        return (
            f"{short} The draft is loaded before the pools here, so mem_fraction_static does not matter: use "
            "a quantised model or more GPUs (tp_size), or end what else holds the GPU's memory (nvidia-smi)."
        )
    return (
        f"{short} The draft needs more at its load than it keeps: lower mem_fraction_static (up to SGLang "
        "0.5.13), or use a quantised model."
    )


def pools(figures: Figures) -> str | None:
    """
    What is left for the pools is nothing: which way to go follows from the floor that SGLang quotes.
    """
    floor, fraction = figures.get("floor"), figures.get(FRACTION)
    if fraction is None:
        return None
    if floor is None:
        return _nothing_left(fraction, figures)
    if floor >= fraction:
        before = figures.get("free_before_weights_gib")
        free = "" if before is None else f" of the {before:g} GiB that were free"
        return (
            f"The weights alone need mem_fraction_static above {floor:g}{free}, and {fraction:g} was in "
            "force: raise it, or use a quantised model. If the card has more than that, another program or "
            "another server of the same deployment holds the rest: end that instead."
        )
    shared = (
        " Where the GPU shares the host's memory, it also varies from boot to boot: drop the page cache and "
        "start the same again."
        if fraction > HIGHEST_FRACTION
        else ""
    )
    return (
        f"The floor of {floor:g} that SGLang quotes lies below the {fraction:g} in force: it counts weights "
        "only, and recurrent state and draft states take the rest. Ask for fewer running requests or state "
        f"slots.{shared}"
    )


def _nothing_left(fraction: float, figures: Figures) -> str:
    """
    The older words quote no floor; what the weights took says whether they alone are above the fraction.
    """
    weights_gib, before = figures.get("weights_gib"), figures.get("free_before_weights_gib")
    if weights_gib is not None and before is not None and weights_gib > fraction * before:
        return (
            f"The weights took {weights_gib:g} of the {before:g} GiB that were free, more than "
            f"mem_fraction_static = {fraction:g} grants: raise it, use a quantised model or more GPUs "
            "(tp_size)."
        )
    if figures.get(SPECULATES) == 0 and figures.get(RADIX_CACHE) != 0:
        return (
            f"mem_fraction_static = {fraction:g} was in force: raise it. If that is not enough, use a "
            "quantised model or more GPUs (tp_size), or end what else holds the GPU's memory (nvidia-smi)."
        )
    return (
        f"mem_fraction_static = {fraction:g} was in force. Ask for fewer running requests first (with MTP "
        "each reserves recurrent state before the pools are sized), then raise it."
    )


def state_pool(figures: Figures) -> str | None:
    """
    Not one slot of recurrent state fits into what is left.
    """
    rest, state = figures.get("rest_gib"), figures.get("state_mib")
    slots, ratio = figures.get("max_mamba_cache_size"), figures.get("slots_per_request")
    if slots is not None and ratio is not None:
        return (
            f"{slots:g} slots of recurrent state were to be had, and a request takes {ratio:g}: raise "
            "max_mamba_cache_size or leave it out, raise mem_fraction_static, or halve the state with "
            'mamba_ssm_dtype = "bfloat16".'
        )
    if rest is None or state is None:
        return None
    if rest <= 0:
        return (
            f"{rest:g} GiB are left after the weights, and a slot of recurrent state takes {state:g} "
            "MiB: raise "
            "mem_fraction_static, or use a quantised model or more GPUs (tp_size)."
        )
    return (
        f"{rest:g} GiB are left after the weights, and a slot of recurrent state takes {state:g} "
        "MiB: halve it with "
        'mamba_ssm_dtype = "bfloat16", draft fewer tokens, or raise mem_fraction_static.'
    )


def state_slots(figures: Figures) -> str | None:
    """
    All slots of recurrent state were taken.
    """
    running = figures.get("effective_running_requests")
    without = "" if no_hicache(figures) else ", or leave the hierarchical cache out"
    if running is not None:
        return (
            f"{running:g} requests were to run at the same time, and some need more than one slot: halve "
            f"max_running_requests, or raise max_mamba_cache_size{without}."
        )
    if without:
        return None
    return (
        "Raise max_mamba_cache_size by at least one slot more than the running requests need, or lower "
        "max_running_requests."
    )


def pool_check(figures: Figures) -> str | None:
    """
    SGLang's bookkeeping of the pools is wrong, without a hierarchical cache.
    """
    if not no_hicache(figures):
        return None
    return (
        "A fault of SGLang's own bookkeeping, not of memory: leave the radix cache out "
        "(disable_radix_cache), or use a newer version."
    )


def tokens(figures: Figures) -> str | None:
    """
    A batch asked for more tokens than the pool had left.
    """
    asked, left = figures.get("asked_tokens"), figures.get("free_tokens")
    if asked is None or left is None:
        return None
    return (
        f"A batch asked for {asked:,.0f} tokens, and {left:,.0f} were left or could be freed by the count: "
        "lower max_running_requests, context_length or the draft tokens. mem_fraction_static is not the "
        "lever."
    )


def context(figures: Figures) -> str | None:
    """
    The context that the model was made for.
    """
    derived = figures.get("derived_context_length")
    if derived is None:
        return None
    return (
        f"Lower context_length to {derived:.0f}, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 together "
        "with a rope setting for more."
    )


def unbalanced(figures: Figures) -> str | None:
    """
    Free memory of the fullest GPU and of another; once the pools are allocated it is the server's own.
    """
    least, most = figures.get("least_gib"), figures.get("most_gib")
    if least is None or most is None:
        return None
    told = f"{least:.2f} GiB are free on one GPU and {most:.2f} on another"
    check = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0"
    if POOLS_DONE in figures:
        fraction = f" (now {figures[FRACTION]:g})" if FRACTION in figures else ""
        return (
            f"{told}, after the server's own pools: lower mem_fraction_static{fraction} so that the draft "
            f"finds room, or set {check} where that much is enough."
        )
    return (
        f"{told}: end what else holds memory (nvidia-smi). Where the cards differ, or it is the "
        f"server's own, set {check}."
    )


def kernel(figures: Figures) -> str | None:
    """
    A kernel wants more of the memory on the chip than the card has.
    """
    asked, has = figures.get("onchip_asked_bytes"), figures.get("onchip_bytes")
    if asked is None or has is None:
        return None
    return (
        f"A kernel needs {asked:.0f} bytes of the memory on the chip, and this card has "
        f"{has:.0f}: use another "
        "moe_runner_backend or attention_backend, or a newer SGLang. No memory flag matters."
    )


def crash(figures: Figures) -> str | None:
    """
    A crash before any kernel of the model ran.
    """
    if figures.get("kernels_ran") != 0:
        return None
    return (
        "No kernel of the model had run yet, so no flag is known to matter: start the same again. If it "
        "comes back, look at the driver, or rent another box."
    )


def watchdog(figures: Figures) -> str | None:
    """
    How long a forward took.
    """
    seconds = figures.get("watchdog_timeout")
    if seconds is None:
        return None
    return (
        f"One forward took longer than watchdog_timeout ({seconds:g} s): raise it if kernels were "
        "being built, "
        "otherwise look for a GPU that hangs (nvidia-smi, NCCL)."
    )


def port(figures: Figures) -> str | None:
    """
    Which port is held.
    """
    number = figures.get("port")
    if number is None:
        return None
    return (
        f"Another process listens on port {number:.0f} of the box (`ss -ltnp`): end it, or choose "
        "another port."
    )


def no_hicache(figures: Figures) -> bool:
    """
    Whether the log says that the hierarchical cache is off.
    """
    return figures.get(HIERARCHICAL_CACHE) == 0


def _short(figures: Figures) -> str | None:
    asked, free = figures.get("asked_mib"), figures.get("free_mib")
    if asked is None or free is None:
        return None
    return f"Asked for {_memory(asked)}, {_memory(free)} were free."


def _memory(mib: float) -> str:
    return f"{mib / 1024:.2f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"
