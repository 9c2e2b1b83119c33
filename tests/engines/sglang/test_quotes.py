import pytest

from mtpdeploy.core.diagnosis import Cause
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from tests.engines.sglang.recorded import main_exception, read, scheduler_exception, start_until, verdict

BATCH = "cuda_graph_max_bs"


class TestWords:
    """
    Remedies by the words of the proving line.
    """

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("unrecognized arguments: --max-num-seqs 16", "SGLang's is max_running_requests"),
            ("unrecognized arguments: --gpu-memory-utilization 0.9", "SGLang's is mem_fraction_static"),
            (
                "unrecognized arguments: --mamba-scheduler-strategy extra_buffer",
                "up to SGLang 0.5.19; since 0.5.14 it is --mamba-radix-cache-strategy",
            ),
            (
                "ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode",
                "since 0.5.14 it is --cuda-graph-max-bs-decode.",
            ),
            ("unrecognized arguments: --speculative-adaptive", "came with SGLang 0.5.11"),
            ("unrecognized arguments: --max-runing-requests 3", "the nearest is max_running_requests"),
            ("unrecognized arguments: --xyzzy 3", "Correct or leave out the argument"),
            (
                "argument --speculative-algorithm: invalid choice: 'DFLASH' (choose from EAGLE, NGRAM)",
                "DFLASH came with SGLang 0.5.11",
            ),
            (
                "argument --speculative-algorithm: invalid choice: 'EGLE' (choose from EAGLE, NGRAM)",
                "Correct or leave out the argument",
            ),
        ],
    )
    def test_a_refused_argument(self, line: str, told: str) -> None:
        """
        Of another engine, of another release, misspelt; else only that it is to be corrected.
        """
        found = verdict(read([f"launch_server.py: error: {line}"]), 2)

        assert Cause.BAD_ARGUMENT is found.cause
        assert told in found.remedy

    @pytest.mark.parametrize(
        ("symbol", "told"),
        [
            ("cuGreenCtxStreamCreate", "driver most likely lacks cuGreenCtxStreamCreate"),
            ("_ZN3c105ErrorE", "Reinstall what this SGLang version pins"),
        ],
    )
    def test_a_symbol_of_the_driver_is_in_no_package(self, symbol: str, told: str) -> None:
        """
        Functions of the driver's own library begin with `cu`.
        """
        found = verdict(read(main_exception(f"ImportError: x.abi3.so: undefined symbol: {symbol}")), 1)

        assert (Cause.KERNEL_MISMATCH, True) == (found.cause, told in found.remedy)

    def test_a_key_that_config_json_lacks(self) -> None:
        """
        It is named, and a newer SGLang is not the first thing to try.
        """
        line = "AttributeError: 'Qwen3NextConfig' object has no attribute 'full_attention_interval'"

        found = verdict(read([*start_until("arguments"), *scheduler_exception(line)]))

        assert Cause.MODEL_UNSUPPORTED is found.cause
        assert "config.json lacks `full_attention_interval`" in found.remedy

    def test_sglang_itself_is_missing(self) -> None:
        """
        Then none of its packages is to be reinstalled.
        """
        found = verdict(read(main_exception("ModuleNotFoundError: No module named 'sglang'")), 1)

        assert found.remedy.startswith("SGLang is not installed for the Python that was started")

    def test_a_machine_with_rocm_gets_no_advice_for_cuda(self) -> None:
        """
        Neither CUDA's packages nor its tools.
        """
        shim = (
            "Exception: Capture cuda graph failed: ROCm shim: x was really called - needs a native ROCm build"
        )
        full = (
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 51.75 GiB. GPU 0 has a total "
            "capacity of 191.98 GiB of which 20.10 GiB is free."
        )

        packages = verdict(read([*start_until("graphs begun"), *scheduler_exception(shim)]))
        weights = verdict(read([*start_until("weights begun"), *scheduler_exception(full)]))

        assert "SGLang's image for ROCm" in packages.remedy
        assert "(rocm-smi)" in weights.remedy
        assert "nvidia" not in weights.remedy

    def test_a_kernel_that_does_not_compile_by_its_own_fault(self) -> None:
        """
        Triton says in a further line what is wrong; that no other card changes.
        """
        message = ("triton.compiler.errors.CompilationError: at 63:8:", "    token = tl.load(p)")
        types = (
            "AssertionError('Mismatched type for token between then block (int64) and else block (int32)')"
        )

        found = verdict(read([*start_until("graphs begun"), *scheduler_exception(*message, types)]))

        assert (Cause.KERNEL_UNFIT, types) == (found.cause, found.proof)
        assert "whatever the card" in found.remedy


class TestSpelling:
    """
    Flags named as the release at hand has them.
    """

    @pytest.mark.parametrize(
        ("releases", "told"),
        [
            (("0.5.9",), f"({BATCH})"),
            (("0.5.13", "0.5.13.post1"), f"({BATCH})"),
            (("0.5.14",), f"({BATCH}_decode)"),
            (("0.5.9", "0.5.23"), f"({BATCH}_decode ({BATCH} before 0.5.14))"),
            ((), f"({BATCH}_decode ({BATCH} before 0.5.14))"),
        ],
    )
    def test_a_flag_that_was_renamed(self, releases: tuple[str, ...], told: str) -> None:
        """
        As the version calls it; both where that is not known.
        """
        assert told in KNOWLEDGE[Cause.OOM_GRAPHS].advice({}, "", releases)

    @pytest.mark.parametrize(
        ("name", "told"), [(f"{BATCH}=8", BATCH), (f"{BATCH}_decode=8", f"{BATCH}_decode")]
    )
    def test_by_the_names_in_the_log(self, name: str, told: str) -> None:
        """
        The resolved arguments tell how this release calls it.
        """
        lines = [line.replace("tp_size=1", name) for line in start_until("graphs begun")]

        found = verdict(read([*lines, *scheduler_exception("torch.OutOfMemoryError: CUDA out of memory.")]))

        assert found.remedy.endswith(f"ones ({told}).")

    def test_by_the_name_in_the_line(self) -> None:
        """
        What the proving line calls it is right where nothing else tells.
        """
        line = (
            "ValueError: Speculative decoding for X is not compatible with radix cache when using "
            "--mamba-scheduler-strategy no_buffer."
        )

        assert "Set mamba_scheduler_strategy =" in verdict(read(main_exception(line)), 1).remedy
