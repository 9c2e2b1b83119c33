"""The seed case, worked out by hand, and the failures that follow from flags alone."""

import pytest

from tests.demo.conftest import MakeHome, Started

SEED = (
    "--attention-backend", "triton", "--mem-fraction-static", "0.80",
    "--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3",
    "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
    "--mamba-scheduler-strategy", "extra_buffer",
)  # fmt: skip
HICACHE = ("--enable-hierarchical-cache", "--hicache-size", "200")
MTP = ("--speculative-algorithm", "NEXTN")
EXTRA_BUFFER = ("--mamba-scheduler-strategy", "extra_buffer")


@pytest.mark.parametrize("requests", ["512", "48"])
def test_seed_with_many_requests_has_no_memory(make: MakeHome, port: int, requests: str) -> None:
    """
    0.80 of 94.32 GiB less 51.05 GiB of weights is 24.4 GiB; the verify states of 48 requests take 27.5.

    48 x 4 x 146.81 MiB = 27.5 GiB, of 512 requests 293.6 GiB: the token pool is negative either way.
    """
    server = Started(make(), port, *SEED, *HICACHE, "--max-running-requests", requests)

    assert 137 == server.wait()
    assert (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
        "Current value: self.server_args.mem_fraction_static=0.8\n\n"
    ) in server.log
    assert server.log.index("Not enough memory") < server.log.index("Received sigquit from a child process")


def test_seed_with_16_requests_dies_of_the_hierarchical_cache(make: MakeHome, port: int) -> None:
    """
    With 16 requests 9.2 GiB go to verify states, so there are pools: 50 slots, 131k tokens, 12 requests.

    But SGLang 0.5.9 has no host pool for recurrent states, and says so after everything is captured.
    """
    server = Started(make(), port, *SEED, *HICACHE, "--max-running-requests", "16")

    assert 137 == server.wait()
    assert "max_mamba_cache_size: 50, conv_state size: 0.14GB, ssm_state size: 7.17GB" in server.log
    assert "max_total_num_tokens=131090, chunked_prefill_size=8192" in server.log
    assert "ValueError: HiRadixCache only supports MHA and MLA yet" in server.log


def test_seed_without_the_hierarchical_cache_serves_with_mtp(make: MakeHome, port: int) -> None:
    """Both concessions together: ready, twelve requests at once, and about 2.9 tokens a verify."""
    server = Started(make(), port, *SEED, "--max-running-requests", "16").ready()

    for _ in range(3):
        status, answer = server.chat("tell me of drafts", max_tokens=300, ignore_eos=True)

        assert 200 == status
        assert "[simulated by mtpdeploy's demo box]" in answer["choices"][0]["message"]["content"]
        assert 300 == answer["usage"]["completion_tokens"]
    _, info = server.get("/server_info")

    assert "0.5.9" == info["version"]
    assert "EAGLE" == info["speculative_algorithm"]
    assert 12 == info["internal_states"][0]["effective_max_running_requests_per_dp"]
    assert 2.6 < info["internal_states"][0]["avg_spec_accept_length"] < 3.2
    assert "type=Qwen3_5ForCausalLMMTP" in server.log
    assert "accept len: " in server.log


def test_checkpoint_without_mtp_tensors_is_ready_and_accepts_nothing(make: MakeHome, port: int) -> None:
    """No error names the missing tensors; only the accept length does."""
    home = make()
    model = str(home.model("Qwen3.6-27B-without-mtp"))
    server = Started(home, port, *SEED, "--max-running-requests", "8", "--model-path", model).ready()
    server.chat("x", max_tokens=100, ignore_eos=True)

    assert 1.0 == server.get("/server_info")[1]["internal_states"][0]["avg_spec_accept_length"]
    assert "accept len: 1.00, accept rate: 0.25" in server.log


REFUSALS = [
    # (release, flags, exit status, text); numbers in the comments: the catalogue of failures
    ("0.5.14", ("--mem-fraction-static", "0.55", *MTP), 137, "Not enough GPU memory for hybrid"),  # 3
    ("0.5.17", ("--max-mamba-cache-size", "3", *MTP), 137, "state cache is too small to serve any"),  # 4
    (
        "0.5.23",
        ("--max-running-requests", "99", "--disable-radix-cache", *MTP),
        137,
        "Loaded weights leave no",
    ),  # 2
    (
        "0.5.12",
        ("--mem-fraction-static", "0.95", "--max-running-requests", "16", *MTP, *EXTRA_BUFFER),
        137,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
    ),  # 6
    (
        "0.5.9",
        ("--mem-fraction-static", "0.998", "--attention-backend", "triton"),
        137,
        "in init_memory_pool\n    raise RuntimeError(\n    ^^^^^^^^^^^^^^^^^^^\ntorch.OutOfMemoryError",
    ),  # 7
    (
        "0.5.9",
        ("--mem-fraction-static", "0.996", "--attention-backend", "triton"),
        137,
        "Capture cuda graph failed: CUDA out of memory",
    ),  # 8
    (
        "0.5.23",
        ("--mem-fraction-static", "0.999", "--attention-backend", "triton"),
        137,
        "Fail when using backend: breakable for prefill runner.",
    ),  # 9
    ("0.5.12", MTP, 1, "is not compatible with radix cache when using --mamba-scheduler-strategy"),  # 22
    (
        "0.5.12",
        ("--mamba-scheduler-strategy", "extra_buffer", "--disable-radix-cache", *MTP),
        1,
        "mamba extra_buffer is not compatible with --disable-radix-cache",
    ),  # 23
    (
        "0.5.14",
        ("--mamba-radix-cache-strategy", "no_buffer", *MTP),
        1,
        "no_buffer do not support overlap schedule",
    ),  # 24
    (
        "0.5.14",
        ("--mamba-radix-cache-strategy", "extra_buffer_lazy", *SEED[4:12]),
        1,
        "extra_buffer_lazy unsupported",
    ),  # 27
    ("0.5.9", ("--speculative-eagle-topk", "1", *MTP), 1, "\nAssertionError\n"),  # 30
    (
        "0.5.23",
        ("--enable-hierarchical-cache", "--disable-radix-cache"),
        1,
        "and disable-radix-cache are mutually exclusive",
    ),  # 36
    ("0.5.9", (), 137, "triton or trtllm_mha backend are the only supported backends on Blackwell"),  # 38
    (
        "0.5.12",
        ("--attention-backend", "torch_native"),
        137,
        "triton, trtllm_mha, fa4, or flashinfer backend",
    ),  # 39
    ("0.5.23", ("--attention-backend", "fa4"), 137, "GDN models. Got prefill=fa4, decode=fa4."),  # 39
    ("0.5.23", ("--enable-hierarchical-cache", "--hicache-size", "900"), 137, "Not enough host memory"),  # 17
    (
        "0.5.14",
        ("--enable-hierarchical-cache", "--hicache-size", "1"),
        137,
        "The host memory should be larger",
    ),  # 18
    ("0.5.9", ("--model-path", "no/such-model"), 1, "is not a local folder and is not a valid"),  # 56
    ("0.5.8", ("--attention-backend", "triton"), 137, "are not supported for now"),  # 63
    ("0.5.9", ("--context-length", "999999"), 1, "is greater than the derived context_length (262144)"),  # 65
    ("0.5.9", ("--no-such-flag", "3"), 2, "error: unrecognized arguments: --no-such-flag 3"),  # 69
    ("0.5.20", ("--cuda-graph-max-bs", "8"), 2, "ambiguous option: --cuda-graph-max-bs could match"),  # 69
    ("0.5.9", ("--speculative-algorithm", "DFLASH"), 2, "invalid choice: 'DFLASH'"),  # 69
]


@pytest.mark.parametrize(("version", "flags", "status", "text"), REFUSALS)
def test_flags_that_cannot_work_are_refused_as_that_release_refuses_them(
    make: MakeHome, port: int, version: str, flags: tuple[str, ...], status: int, text: str
) -> None:
    """The text, and the exit status: 2 for the command line, 1 while resolving, 137 in the scheduler."""
    server = Started(make(sglang_version=version), port, *flags)

    assert status == server.wait()
    assert text in server.log
    assert ("Scheduler hit an exception: Traceback" in server.log) == (status == 137)
    assert ("sigquit from a child" in server.log) == (status == 137)


def test_weights_and_another_s_memory_do_not_fit_together(make: MakeHome, port: int) -> None:
    """A stranger with 50 GiB leaves no room for 51: out of memory before the first load ends (5)."""
    home = make()
    stranger = home.start_stranger("memory", "50")
    smi = ("--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory", "--format=csv,noheader,nounits")
    held = home.path / "held"
    while b"51200" not in (held.read_bytes() if held.exists() else b""):
        home.start("nvidia-smi", *smi, log=held).wait()
    server = Started(home, port, "--attention-backend", "triton")

    assert 137 == server.wait()
    assert "avail mem=44.32 GB" in server.log
    assert f"Process {stranger.pid} has 50.00 GiB memory in use" in server.log
    assert "Load weight end" not in server.log


def test_long_prompt_ends_a_server_without_slack(make: MakeHome, port: int) -> None:
    """What looks ready dies in its first full prefill chunk when the slack is too small (10)."""
    flags = ("--mem-fraction-static", "0.988", "--cuda-graph-backend-prefill", "disabled")
    server = Started(make(sglang_version="0.5.23"), port, *flags, "--max-running-requests", "8").ready()

    assert 200 == server.chat("short", max_tokens=4)[0]
    with pytest.raises(OSError, match=r"."):
        server.chat("word " * 40_000, max_tokens=4)
    assert 137 == server.wait()
    assert "SIGQUIT received." in server.log
    assert "torch.OutOfMemoryError" in server.log[server.log.index("ready to roll") :]
