import pytest

from mtpdeploy.core.server import FlagValue, ServerSpec
from mtpdeploy.engines.sglang.flag_table import (
    Flag,
    check_value,
    column_for,
    env_default,
    env_known,
    field_name,
    find,
    known_since,
    known_until,
    nearest,
    parse_text,
    spell,
    why_unknown,
)
from mtpdeploy.engines.sglang.flags import command
from mtpdeploy.engines.sglang.versions import NEWEST, Version, parse_version
from mtpdeploy.errors import ConfigError


def release(text: str) -> Version:
    """
    The version of that text, which must be a release.
    """
    version = parse_version(text)
    assert version is not None
    return version


def flag(name: str) -> Flag:
    """
    The flag of that name, which must exist.
    """
    found = find(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "version", "option"),
    [
        ("mamba_radix_cache_strategy", "0.5.6", None),
        ("mamba_radix_cache_strategy", "0.5.7", "--mamba-scheduler-strategy"),
        ("mamba_radix_cache_strategy", "0.5.13.post1", "--mamba-scheduler-strategy"),
        ("mamba_radix_cache_strategy", "0.5.14", "--mamba-radix-cache-strategy"),
        ("mamba_radix_cache_strategy", "0.5.23", "--mamba-radix-cache-strategy"),
        ("cuda_graph_max_bs_decode", "0.5.9", "--cuda-graph-max-bs"),
        ("cuda_graph_max_bs_decode", "0.5.14", "--cuda-graph-max-bs-decode"),
        ("cuda_graph_bs_decode", "0.5.13", "--cuda-graph-bs"),
        ("cuda_graph_bs_prefill", "0.5.9", "--piecewise-cuda-graph-tokens"),
        ("incremental_streaming_output", "0.5.9", "--stream-output"),
        ("dsa_decode_backend", "0.5.12", "--nsa-decode-backend"),
        ("speculative_draft_window_size", "0.5.11", "--speculative-dflash-draft-window-size"),
        ("tp_size", "0.5.6", "--tp-size"),
        ("fp8_gemm_runner_backend", "0.5.23", "--fp8-gemm-backend"),
        ("disable_cuda_graph", "0.5.23", "--disable-cuda-graph"),
        ("speculative_adaptive", "0.5.10.post1", None),
        ("speculative_adaptive", "0.5.11", "--speculative-adaptive"),
        ("speculative_use_rejection_sampling", "0.5.13.post1", None),
        ("speculative_draft_kv_cache_dtype", "0.5.18", "--speculative-draft-kv-cache-dtype"),
        ("speculative_use_block_verification", "0.5.21", None),
        ("linear_attn_backend", "0.5.10", "--linear-attn-backend"),
        ("enable_expert_distribution_metrics", "0.5.18", None),
    ],
)
def test_a_flag_is_spelled_as_the_version_spells_it(name: str, version: str, option: str | None) -> None:
    """
    The option string is one that the version's parser takes and, where there is a choice, no deprecated one.
    """
    assert option == spell(flag(name), release(version))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("--mamba-scheduler-strategy", "mamba_radix_cache_strategy"),
        ("mamba_scheduler_strategy", "mamba_radix_cache_strategy"),
        ("cuda-graph-max-bs", "cuda_graph_max_bs_decode"),
        ("--tensor-parallel-size", "tp_size"),
        ("--tp", "tp_size"),
        ("--ep", "ep_size"),
        ("model", "model_path"),
        ("--speculative-draft-model", "speculative_draft_model_path"),
        ("speculative_algo", "speculative_algorithm"),
        ("fp8_gemm_backend", "fp8_gemm_runner_backend"),
        ("--enable-hicache", "enable_hierarchical_cache"),
    ],
)
def test_a_flag_is_found_by_any_spelling(spelling: str, name: str) -> None:
    """
    Old names, aliases, dashes and underscores lead to the one record.
    """
    assert name == flag(spelling).name


def test_a_removed_flag_says_since_when_and_what_took_its_place() -> None:
    """
    The n-gram window of 0.5.9 is no rename: it has its own record, an end and a successor.
    """
    window = flag("speculative_ngram_max_match_window_size")

    assert window.name == "speculative_ngram_max_match_window_size"
    assert release("0.5.9") == known_until(window)
    assert spell(window, release("0.5.10")) is None
    assert (
        "speculative_ngram_max_match_window_size is gone since SGLang 0.5.10; this is 0.5.12; "
        "use --speculative-ngram-max-trie-depth"
    ) == why_unknown(window, release("0.5.12"))


def test_a_flag_that_is_not_there_yet_says_since_when() -> None:
    """
    On an older box the message names the release that brought the flag.
    """
    adaptive = flag("speculative_adaptive")

    assert release("0.5.11") == known_since(adaptive)
    assert known_until(adaptive) is None
    assert "speculative_adaptive came with SGLang 0.5.11; this is 0.5.9" == why_unknown(
        adaptive, release("0.5.9")
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.5.9", Version((0, 5, 9))),
        (" v0.5.10.post1\n", Version((0, 5, 10), 1)),
        ("0.5.9+cu129", Version((0, 5, 9))),
        ("0.0.0.dev0", None),
        ("0.0.0", None),
        ("0.5.24.dev12+g1a2b3c", Version((0, 5, 24), 0, ".dev12")),
        ("0.5.10rc0", Version((0, 5, 10), 0, "rc0")),
        ("0.5.12.post1.dev2+g1a2b3c", Version((0, 5, 12), 1, ".dev2")),
        ("0.5.13rc1.dev4", Version((0, 5, 13), 0, "rc1.dev4")),
        ("0.5.12-fork", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_what_is_a_version(text: str, version: Version | None) -> None:
    """
    A build without a number says nothing about its flags, so it is no version.
    """
    assert version == parse_version(text)


@pytest.mark.parametrize(
    ("version", "column", "exact"),
    [
        ("0.5.10.post1", "0.5.10.post1", True),
        ("0.5.9.post7", "0.5.9", False),
        ("0.6.0", "0.5.23", False),
        ("0.4.10", "0.5.6", False),
        ("0.5.12rc1", "0.5.12", False),
        ("0.5.12.dev3+gabc", "0.5.12", False),
        ("0.5.13rc0", "0.5.13", False),
        ("0.5.13.post1.dev1", "0.5.13.post1", False),
        ("0.5.24.dev7", "0.5.23", False),
    ],
)
def test_an_unknown_release_goes_by_the_one_before_it(version: str, column: str, *, exact: bool) -> None:
    """
    A newer release takes the newest column, a build on the way to a release that one's, and the caller is
    told that this is a guess.
    """
    assert (release(column), exact) == column_for(release(version))


@pytest.mark.parametrize("text", ["0.4", "0.5.5.post3", "0.5.5rc1"])
def test_what_is_too_old(text: str) -> None:
    """
    Nothing is known of releases before the first of the table: no command is made for one.
    """
    with pytest.raises(ConfigError) as raised:
        command(ServerSpec("m", {"model_path": "m"}), "python3", text)

    assert f"SGLang {text} is older than all that are known here, 0.5.6 to 0.5.23" == raised.value.message


@pytest.mark.parametrize("text", ["0.5.6rc1", "0.5.6", "1.0", "", "main"])
def test_what_is_not_too_old(text: str) -> None:
    """
    A build without a number is not taken for an old one.
    """
    assert command(ServerSpec("m", {"model_path": "m"}), "python3", text).argv


def test_no_version_at_all_goes_by_the_newest_column() -> None:
    """
    Where the box cannot say what it runs, the newest spelling is the guess, and it is said to be one.
    """
    assert (NEWEST, False) == column_for(None)
    assert "--mamba-radix-cache-strategy" == spell(flag("mamba_scheduler_strategy"), None)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mem_fraction_statik", "mem_fraction_static"),
        ("--max-runing-requests", "max_running_requests"),
        ("mamba_schedular_strategy", "mamba_radix_cache_strategy"),
        ("speculative_num_step", "speculative_num_steps"),
    ],
)
def test_the_nearest_name_comes_first(typed: str, meant: str) -> None:
    """
    A slip of the hand leads to the name that was meant, in its newest form.
    """
    assert meant == nearest(typed)[0]


def test_nothing_is_near_to_nonsense() -> None:
    """
    A suggestion that helps nobody is not made.
    """
    assert [] == nearest("qqqqqqqq")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mem_fraction_static", 0.8),
        ("mem_fraction_static", 1),
        ("max_running_requests", 512),
        ("trust_remote_code", True),
        ("trust_remote_code", False),
        ("context_length", 131072),
        ("context_length", "128k"),
        ("kv_cache_dtype", "fp8_e4m3"),
        ("cuda_graph_bs_decode", [1, 2, 4]),
        ("cuda_graph_bs_decode", 8),
        ("json_model_override_args", '{"a": 1}'),
        ("preferred_sampling_params", '{"temperature": 0.6}'),
        ("cuda_graph_backend_prefill", "tc_piecewise"),
    ],
)
def test_a_value_that_the_parser_takes_is_right(name: str, value: FlagValue) -> None:
    """
    What some release takes passes; a whole number is a number.
    """
    assert check_value(flag(name), value) is None


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("mem_fraction_static", "0.8", "mem_fraction_static takes a number, not '0.8'"),
        ("mem_fraction_static", True, "mem_fraction_static takes a number, not True"),
        ("max_running_requests", 1.5, "max_running_requests takes a whole number, not 1.5"),
        ("max_running_requests", True, "max_running_requests takes a whole number, not True"),
        ("trust_remote_code", "yes", "trust_remote_code takes true or false, not 'yes'"),
        (
            "context_length",
            "1.5Ki",
            "context_length takes a whole number or text such as 8k or 2Mi, not '1.5Ki'",
        ),
        ("model_path", 7, "model_path takes text, not 7"),
        ("cuda_graph_bs_decode", [1, "x"], "cuda_graph_bs_decode takes a whole number, not 'x'"),
        ("cuda_graph_bs_decode", [], "cuda_graph_bs_decode takes at least one value"),
        ("max_running_requests", [1], "max_running_requests takes a whole number, not [1]"),
        ("cuda_graph_config", "{", "cuda_graph_config takes JSON text, not '{'"),
        (
            "tokenizer_mode",
            "fast",
            "tokenizer_mode takes one of auto, slow (SGLang 0.5.23), not 'fast'",
        ),
    ],
)
def test_a_wrong_value_is_told_in_one_sentence(name: str, value: FlagValue, wrong: str) -> None:
    """
    The sentence names the flag, what it takes and what it got.
    """
    assert wrong == check_value(flag(name), value)


def test_choices_are_those_of_the_version() -> None:
    """
    `extra_buffer_lazy` came with 0.5.13, suffixed sizes with 0.5.10.
    """
    strategy = flag("mamba_radix_cache_strategy")

    assert check_value(strategy, "extra_buffer_lazy", release("0.5.13")) is None
    assert (
        "mamba_radix_cache_strategy takes one of auto, no_buffer, extra_buffer (SGLang 0.5.12.post1), "
        "not 'extra_buffer_lazy'"
    ) == check_value(strategy, "extra_buffer_lazy", release("0.5.9"))
    assert "context_length takes a whole number, not '128k'" == check_value(
        flag("context_length"), "128k", release("0.5.9")
    )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("mem_fraction_static", "0.8", 0.8),
        ("max_running_requests", "48", 48),
        ("context_length", "64Ki", 65536),
        ("context_length", "25.6k", 25600),
        ("trust_remote_code", "true", True),
        ("trust_remote_code", "off", False),
        ("served_model_name", "12", "12"),
        ("cuda_graph_bs_decode", "1,2, 4", [1, 2, 4]),
        ("cuda_graph_bs_decode", "[1, 2]", [1, 2]),
        (
            "lora_paths",
            '{"lora_name": "a", "lora_path": "/a, b"}',
            ['{"lora_name": "a", "lora_path": "/a, b"}'],
        ),
        ("preferred_sampling_params", '{"temperature": 0.6}', '{"temperature": 0.6}'),
    ],
)
def test_text_is_read_by_the_kind_of_the_flag(name: str, text: str, value: FlagValue) -> None:
    """
    The text after `--set key=` becomes the value that TOML would have given.
    """
    assert value == parse_text(flag(name), text)


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("mem_fraction_static", "much", "mem_fraction_static takes a number, not 'much'"),
        ("max_running_requests", "1e3", "max_running_requests takes a whole number, not '1e3'"),
        ("trust_remote_code", "maybe", "trust_remote_code takes true or false, not 'maybe'"),
        ("cuda_graph_bs_decode", "[1,", "cuda_graph_bs_decode takes a list; '\\[1,' is not JSON"),
        ("cuda_graph_bs_decode", "", "cuda_graph_bs_decode takes at least one value"),
    ],
)
def test_text_that_makes_no_value_is_refused(name: str, text: str, wrong: str) -> None:
    """
    A ValueError carries the sentence for the user.
    """
    with pytest.raises(ValueError, match=wrong):
        parse_text(flag(name), text)


def test_the_field_is_named_as_server_info_names_it() -> None:
    """
    Before 0.5.14 the field of the recurrent cache's strategy has its old name.
    """
    strategy = flag("mamba_radix_cache_strategy")

    assert "mamba_scheduler_strategy" == field_name(strategy, release("0.5.9"))
    assert "mamba_radix_cache_strategy" == field_name(strategy, release("0.5.14"))


@pytest.mark.parametrize(
    ("name", "version", "known", "default"),
    [
        ("SGLANG_ENABLE_SPEC_V2", "0.5.6", True, False),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.10.post1", True, False),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.11", True, True),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.13.post1", True, True),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.14", False, None),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.20", False, None),
        ("SGLANG_ENABLE_SPEC_V2", "0.5.23", False, None),
        ("SGL_ENABLE_SPEC_V2", "0.5.9", True, None),
        ("SGLANG_NO_SUCH_THING", "0.5.9", None, None),
        ("LD_LIBRARY_PATH", "0.5.9", None, None),
    ],
)
def test_a_variable_counts_where_it_is_read(
    name: str, version: str, known: bool | None, default: bool | None
) -> None:
    """
    A release that only warns about a variable does not read it; one that SGLang never had is not judged.
    """
    assert known is env_known(name, release(version))
    assert default == env_default(name, release(version))
