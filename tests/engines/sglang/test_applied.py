import pytest

from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.applied import unapplied


def differing(flags: dict[str, FlagValue], info: dict[str, object], version: str = "0.5.23") -> list[str]:
    """
    What runs otherwise than asked for, as it is told.
    """
    return [str(one) for one in unapplied(ServerSpec(name="q", flags=flags), info, version)]


@pytest.mark.parametrize(
    ("flags", "info"),
    [
        ({"speculative_algorithm": "NEXTN"}, {"speculative_algorithm": "EAGLE"}),
        ({"port": 30000}, {"port": 30000}),
        ({"mem_fraction_static": 0.8}, {"mem_fraction_static": 0.79}),
        ({"max_running_requests": 512}, {"max_running_requests": 12}),
        ({"trust_remote_code": False}, {"trust_remote_code": None}),
        ({"cuda_graph_bs_decode": [1, 2]}, {"cuda_graph_bs_decode": [1, 2]}),
        ({"model_path": "/models/link"}, {"model_path": "/models/real"}),
        ({"a_flag_it_does_not_tell": 1}, {}),
    ],
    ids=["alias", "same", "rounded", "told elsewhere", "off", "list", "link", "untold"],
)
def test_what_runs_as_asked(flags: dict[str, FlagValue], info: dict[str, object]) -> None:
    """
    Another spelling of the same, and what is told elsewhere, is no difference.
    """
    assert [] == differing(flags, info)


def test_what_runs_otherwise() -> None:
    """
    Speculation that is silently off, a page size that the release sets itself, a switch that did not take.
    """
    flags: dict[str, FlagValue] = {
        "speculative_algorithm": "EAGLE",
        "page_size": 64,
        "enable_metrics": True,
    }
    info: dict[str, object] = {"speculative_algorithm": None, "page_size": 1, "enable_metrics": False}

    assert [
        "speculative_algorithm EAGLE asked for, nothing runs",
        "page_size 64 asked for, 1 runs",
        "enable_metrics True asked for, False runs",
    ] == differing(flags, info)


def test_a_field_bears_the_name_of_its_release() -> None:
    """
    The strategy is `mamba_scheduler_strategy` to 0.5.13, also in what the server tells.
    """
    flags: dict[str, FlagValue] = {"mamba_radix_cache_strategy": "extra_buffer"}
    info: dict[str, object] = {"mamba_scheduler_strategy": "no_buffer"}

    assert ["mamba_radix_cache_strategy extra_buffer asked for, no_buffer runs"] == differing(
        flags, info, "0.5.12"
    )
