"""
Flags that change the weights as they load: taken into account, or said not to be known.
"""

from typing import Any

import pytest

from mtpdeploy.core.memory import Fit, Seen
from mtpdeploy.core.units import GIB
from tests.engines.sglang.sizing.models import CONFIG_27B, plan, shape

TIGHT: dict[str, Any] = {"speculative_algorithm": "EAGLE", "mem_fraction_static": 0.5}
"""Half of a 96 GB card is less than the weights of the 27B take."""

LAYERS = shape(CONFIG_27B).parameters.layers
WHOLE = int(51.05 * GIB)


def weights(flags: dict[str, Any], **options: Any) -> int:
    """
    Bytes of the target's weights in a plan.
    """
    return plan("0.5.23", {"speculative_algorithm": "EAGLE", **flags}, **options).amount("weights")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, WHOLE),
        ({"cpu_offload_gb": 10}, WHOLE - 10 * GIB),
        ({"cpu_offload_gb": 400}, WHOLE - 2 * LAYERS),
        ({"quantization": "fp8"}, WHOLE - LAYERS),
        ({"quantization": "fp8", "cpu_offload_gb": 400}, WHOLE - 2 * LAYERS),
        ({"load_format": "dummy"}, WHOLE),
    ],
)
def test_weights_on_the_gpu(flags: dict[str, Any], expected: int) -> None:
    """
    Layers can be offloaded, tables cannot; quantizing while loading halves the layers.
    """
    assert expected == weights(flags)


def test_a_checkpoint_that_is_quantized_stays_as_it_is() -> None:
    """
    `quantization` then only names what the files have.
    """
    quantized = {**CONFIG_27B, "quantization_config": {"quant_method": "fp8", "bits": 8}}

    assert WHOLE == weights({"quantization": "fp8"}, config=quantized)


@pytest.mark.parametrize(
    ("flags", "fit", "note"),
    [
        ({}, Fit.DOES_NOT_FIT, None),
        (
            {"torchao_config": "int4wo-128"},
            Fit.CLOSE,
            "not planned: what `torchao_config` makes of the weights",
        ),
        (
            {"quantization": "bitsandbytes"},
            Fit.CLOSE,
            "not planned: what `quantization` makes of the weights",
        ),
        ({"load_format": "gguf"}, Fit.CLOSE, "not planned: what `load_format` makes of the weights"),
        ({"offload_group_size": 4}, Fit.CLOSE, "not planned: what `offload_group_size` makes of the weights"),
        (
            {"quantization": "fp8", "mem_fraction_static": 0.9},
            Fit.FITS,
            "`quantization` halves the layers' weights as they load, within some 10 %",
        ),
    ],
)
def test_what_is_not_known_decides_nothing(flags: dict[str, Any], fit: Fit, note: str | None) -> None:
    """
    No start is ruled out, or promised, by a size that a flag changes in a way that is not known.
    """
    found = plan("0.5.23", {**TIGHT, **flags})

    assert fit is found.fit
    assert [note] * (note is not None) == [one for one in found.notes if "weights" in one and "`" in one]


def test_once_seen_it_is_known() -> None:
    """
    What an earlier start loaded counts, whatever the flags.
    """
    found = plan("0.5.23", {**TIGHT, "torchao_config": "int4wo-128"}, seen=Seen(weights=20 * GIB))

    assert 20 * GIB == found.amount("weights")
    assert Fit.FITS is found.fit
    assert [] == [one for one in found.notes if "torchao" in one]
