import re

import pytest

from mtpdeploy.core.diagnosis import Cause, Signature, Stage
from mtpdeploy.engines.sglang import signatures
from mtpdeploy.engines.sglang.flag_table import column_for
from mtpdeploy.engines.sglang.matching import figures_of, match
from mtpdeploy.engines.sglang.versions import parse_version
from tests.engines.sglang import recorded
from tests.engines.sglang.recorded import main_exception, read

ORDINARY = (
    signatures.ORDINARY_SCHEDULER,
    signatures.ORDINARY_PARENT,
    signatures.ORDINARY_DETOKENIZER,
    signatures.WARMUP,
    signatures.SILENT,
)
UNNAMED = {
    Cause.STALLED,
    Cause.VANISHED,
    Cause.BOX_RESTARTED,
    Cause.GPU_FAULT,
    Cause.STOPPED,
    Cause.REQUESTS_REFUSED,
    Cause.UNKNOWN,
}
"""Causes that no line proves: they follow from how the attempt ended."""


def identify(signature: Signature) -> str:
    """
    A name for a signature in test reports.
    """
    return f"{signature.cause.name}-{signature.example[:40]}"


class TestCatalogue:
    """
    The catalogue as a whole.
    """

    @pytest.mark.parametrize("catalogue", [signatures.EXCEPTIONS, signatures.RECORDS])
    def test_each_finds_its_own_example_and_none_before_it_does(
        self, catalogue: tuple[Signature, ...]
    ) -> None:
        """
        A signature's example leads to that signature, at every stage it counts in.
        """
        found = [
            (signature, match(catalogue, signature.example, stage))
            for signature in catalogue
            for stage in signature.stages or tuple(Stage)
        ]

        assert [] == [(identify(wanted), got) for wanted, got in found if got is not wanted]

    @pytest.mark.parametrize("signature", ORDINARY, ids=identify)
    def test_the_ordinary_ones_match_their_examples_and_are_named_by_no_other(
        self, signature: Signature
    ) -> None:
        """
        What has no name of its own is not claimed by a signature that has one.
        """
        assert re.search(signature.pattern, signature.example)
        assert match(signatures.SIGNATURES, signature.example, Stage.READY) is None

    def test_says_where_each_was_seen(self) -> None:
        """
        No signature without a source and an example; its versions are releases that the flag table knows.
        """
        every = (*signatures.SIGNATURES, *ORDINARY)

        bounds = {bound for s in every for bound in s.versions if bound}

        assert [] == [identify(s) for s in every if not (s.example and s.source)]
        assert bounds == {bound for bound in bounds if column_for(parse_version(bound))[1]}

    def test_every_cause_that_a_line_can_prove_has_a_signature(self) -> None:
        """
        The list of causes and the catalogue do not drift apart.
        """
        proven = {signature.cause for signature in (*signatures.SIGNATURES, *ORDINARY)}

        assert set(Cause) - UNNAMED == proven

    def test_out_of_memory_is_told_apart_by_stage(self) -> None:
        """
        One text, five causes: every stage has exactly one, so none is left without a name.
        """
        text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."

        found = {stage: match(signatures.EXCEPTIONS, text, stage) for stage in Stage}

        assert {
            Cause.OOM_WEIGHTS: 3,
            Cause.OOM_DRAFT_WEIGHTS: 1,
            Cause.OOM_POOLS: 5,
            Cause.OOM_GRAPHS: 2,
            Cause.OOM_SERVING: 3,
        } == {
            cause: sum(1 for s in found.values() if s is not None and s.cause is cause)
            for cause in {s.cause for s in found.values() if s is not None}
        }

    def test_the_heaviest_wins_and_then_the_first(self) -> None:
        """
        Weight goes before order.
        """
        light = Signature(Cause.UNKNOWN, "x", "x", "here", weight=3)
        heavy = Signature(Cause.DISK_FULL, "x", "x", "here")
        second = Signature(Cause.NO_GPU, "x", "x", "here")

        assert heavy is match((light, heavy, second), "x", Stage.LAUNCHED)


class TestVersions:
    """
    A wording counts in the releases that print it.
    """

    @pytest.mark.parametrize(
        ("version", "counts"),
        [
            ("0.5.9", False),
            ("0.5.10", True),
            ("0.5.12.post1", True),
            ("0.5.13", True),
            ("0.5.14", False),
            ("", True),
            ("0.0.0.dev1+g12ab", True),
        ],
    )
    def test_a_known_release_narrows_the_catalogue(self, version: str, *, counts: bool) -> None:
        """
        Words of 0.5.10 to 0.5.13 mean nothing in another release, and count where the version tells nothing.
        """
        text = "ValueError: mamba extra_buffer is not compatible with --disable-radix-cache."
        found = match(signatures.catalogue_of(version).exceptions, text, Stage.LAUNCHED)

        assert counts == (found is not None)

    def test_a_reading_goes_by_its_version(self) -> None:
        """
        The words of another era say nothing; that the check of arguments raised it still does.
        """
        lines = main_exception("ValueError: mamba extra_buffer is not compatible with --disable-radix-cache.")

        assert Cause.STRATEGY_NEEDS_RADIX is read(lines).findings[0].cause
        assert Cause.BAD_ARGUMENT is read(lines, "0.5.23").findings[0].cause

    @pytest.mark.parametrize("name", recorded.names())
    def test_every_log_is_judged_the_same_with_its_version(self, name: str) -> None:
        """
        No range is too narrow for a log of that version.
        """
        lines, known = recorded.recorded(name)

        assert recorded.read(lines).findings == recorded.read(lines, known["version"]).findings


class TestFigures:
    """
    Numbers in the texts of failures.
    """

    def test_an_allocation_that_failed(self) -> None:
        """
        GiB and MiB of torch's text become MiB.
        """
        text = (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total "
            "capacity of 94.97 GiB of which 338.75 MiB is free. Including non-PyTorch memory"
        )

        assert {"asked_mib": 1536.0, "total_mib": 94.97 * 1024, "free_mib": 338.75} == figures_of(text)

    def test_a_fraction_and_its_floor(self) -> None:
        """
        The floor that SGLang quotes, and the fraction that was in force, in both forms of its text.
        """
        new = "under --mem-fraction-static=0.75. Raise --mem-fraction-static above 0.236 (minimum viable = 1"
        old = "increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.8"

        assert {"mem_fraction_static": 0.75, "floor": 0.236} == figures_of(new)
        assert {"mem_fraction_static": 0.8} == figures_of(old)

    def test_the_state_cache(self) -> None:
        """
        Slots computed, memory left (negative too), bytes of one request's state.
        """
        text = (
            "Computed max_mamba_cache_size=-28 (total_rest_memory=-7.96 GB, mamba_cache_per_req=146.81 MB). "
            "Try: (1) reduce --max-running-requests"
        )

        assert {"max_mamba_cache_size": -28.0, "rest_gib": -7.96, "state_mib": 146.81} == figures_of(text)

    def test_host_memory_and_context(self) -> None:
        """
        What the hierarchical cache asked for and what was free; the context that the model allows.
        """
        host = "Not enough host memory available. Requesting 200.00 GB but only have 131.50 GB free."
        context = "context_length (1000000) is greater than the derived context_length (262144)."

        assert {"requested_gb": 200.0, "free_gb": 131.5} == figures_of(host)
        assert {"derived_context_length": 262144.0} == figures_of(context)
