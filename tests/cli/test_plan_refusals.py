"""
`mtpdeploy plan` refuses what it cannot plan: one whole error each.
"""

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Said
from tests.cli.test_plan import SEED
from tests.engines.sglang.sizing.models import CONFIG_27B


@pytest.fixture
def plan(folder: Path, run: Run) -> Run:
    """
    Plans a server with these flags for the 27B, with further words.
    """
    (folder / "config.json").write_text(json.dumps(CONFIG_27B))

    def call(flags: tuple[str, ...], *words: str) -> Said:
        settings = [word for flag in flags for word in ("--set", flag)]
        return run("plan", "--model", "config.json", "--gpu", "rtx-pro-6000", *settings, *words)

    return call


BAD_CARDS = {
    "an unknown card": (
        ("--gpu", "h1000"),
        "`--gpu`: there is no card `h1000` in the table",
        "near ones are `h100`, `h200`, `h100-nvl`, `gh200`; `--gpu list` has all; others by `--gpu-mib N`",
    ),
    "two cards by name": (
        ("--gpu", "h100,h200"),
        "`--gpu h100,h200` names several cards, and a plan is for one",
        "give one of them; a server over several of a kind has `--set tp_size=N`",
    ),
    "more memory than there is": (
        ("--gpu-mib", "99999999999999999999"),
        "`--gpu-mib` cannot be more than 16,777,216",
        "`nvidia-smi` shows it as memory.total",
    ),
    "weights without end": (
        ("--gpu", "h100", "--weights-gib", "1e300"),
        "`--weights-gib` cannot be more than 1,048,576",
        "it is counted in GiB, as SGLang prints it",
    ),
    "a draft that is no number": (
        ("--gpu", "h100", "--draft-gib", "nan"),
        "`--draft-gib` cannot be nan",
        "it is counted in GiB, as SGLang prints it",
    ),
    "all the memory there is": (
        ("--gpu", "h100", "--free-gib", "inf"),
        "`--free-gib` cannot be inf",
        "it is counted in GiB, as SGLang prints it",
    ),
    "a file that is not there": (
        ("--gpu", "h100", "--config", "/nonexistent/hosts.toml"),
        "there is no file `/nonexistent/hosts.toml`",
        "check `--config` or MTPDEPLOY_CONFIG, or leave both out to read ./hosts.toml",
    ),
    "a card and a box": (
        ("--gpu", "h100", "--on", "demo"),
        "`--model` is for a plan without a box, and `--on` names one",
        "keep one of the two; on a box `--set model_path=PATH` names another model",
    ),
    "no card": (
        (),
        "a plan needs a box or a card",
        "name a box with `--on`, or a card with `--gpu rtx-pro-6000`",
    ),
    "two cards": (
        ("--gpu", "h100", "--gpu-mib", "81559"),
        "`--gpu` and `--gpu-mib` both describe a card",
        "keep one of the two",
    ),
    "no memory": (
        ("--gpu-mib", "0"),
        "`--gpu-mib` has to be above 0",
        "`nvidia-smi` shows it as memory.total",
    ),
    "memory below nothing": (
        ("--gpu-mib", "-5"),
        "`--gpu-mib` has to be above 0",
        "`nvidia-smi` shows it as memory.total",
    ),
    "nothing free": (
        ("--gpu", "h100", "--free-gib", "0"),
        "`--free-gib` has to be above 0",
        "it is counted in GiB, as SGLang prints it",
    ),
    "more free than there is": (
        ("--gpu", "h100", "--free-gib", "80.5"),
        "`--free-gib` is more than the card has (79.65 GiB)",
        "it is what SGLang prints as `avail mem` at `Load weight begin`",
    ),
    "no number that is": (
        ("--gpu", "h100", "--free-gib", "nan"),
        "`--free-gib` cannot be nan",
        "it is counted in GiB, as SGLang prints it",
    ),
    "weights below nothing": (
        ("--gpu", "h100", "--weights-gib", "-1"),
        "`--weights-gib` has to be above 0",
        "it is counted in GiB, as SGLang prints it",
    ),
    "words for weights": (
        ("--gpu", "h100", "--weights-gib", "many"),
        "invalid value for '--weights-gib': 'many' is not a valid float",
        "see `mtpdeploy plan --help`",
    ),
    "no version": (
        ("--gpu", "h100", "--sglang", "newest"),
        "`--sglang newest` is no version",
        "write it as in `--sglang 0.5.14`",
    ),
    "a version of long ago": (
        ("--gpu", "h100", "--sglang", "0.5.5.post3"),
        "SGLang 0.5.5.post3 is older than all that are known here, 0.5.6 to 0.5.23",
        "install or name SGLang 0.5.6 or newer",
    ),
    "a comparison of nothing": (
        ("--gpu", "h100", "--compare", "mem_fraction_static="),
        "`--compare mem_fraction_static=` gives no values",
        "write `--compare key=a,b,c`",
    ),
    "a comparison without a name": (
        ("--gpu", "h100", "--compare", "=1,2"),
        "`--compare =1,2` gives no values",
        "write `--compare key=a,b,c`",
    ),
    "a comparison of words": (
        ("--gpu", "h100", "--compare", "mem_fraction_static=0.8,x"),
        "`--compare mem_fraction_static`: `mem_fraction_static` wants a number, not 'x'",
        "write a value as in `mem_fraction_static = 0.8`",
    ),
    "a comparison with nonsense": (
        ("--gpu", "h100", "--compare", "page_size=1,0"),
        "`--compare page_size`: `page_size` wants a whole number from 1, not 0",
        "write a value as in `page_size = 8`",
    ),
    "a comparison with what this version does not take": (
        (
            *("--gpu", "h100", "--sglang", "0.5.12"),
            *("--compare", "mamba_radix_cache_strategy=no_buffer,extra_buffer_lazy"),
        ),
        (
            "`--compare mamba_radix_cache_strategy`: `mamba_radix_cache_strategy`"
            " of server `the server`:"
            " mamba_radix_cache_strategy takes one of auto, no_buffer, extra_buffer (SGLang 0.5.12.post1),"
            " not 'extra_buffer_lazy'"
        ),
        "leave `extra_buffer_lazy` out, or plan for another version by `--sglang`",
    ),
    "a wish without a search": (
        ("--gpu", "h100", "--want", "requests=3"),
        "`--want requests=3` is for `--solve`",
        "give `--solve` with it",
    ),
    "a search and a comparison": (
        ("--gpu", "h100", "--solve", "--compare", "page_size=1,2"),
        "`--compare` and `--solve` do not go together",
        "keep one of the two",
    ),
    "a drawing of a search": (
        ("--gpu", "h100", "--solve", "--svg", "x.svg"),
        "`--solve` and `--svg` do not go together",
        "keep one of the two",
    ),
    "a drawing where none can be": (
        ("--gpu", "h100", "--svg", "none/x.svg"),
        "`--svg none/x.svg`: No such file or directory",
        "name a file that can be written",
    ),
}


@pytest.mark.parametrize(("words", "error", "hint"), BAD_CARDS.values(), ids=BAD_CARDS)
def test_bad_words(words: tuple[str, ...], error: str, hint: str, folder: Path, run: Run) -> None:
    """
    One whole error each, exit status 2, and nothing else.
    """
    (folder / "config.json").write_text(json.dumps(CONFIG_27B))

    assert Said(2, "", f"error: {error}\n\nhint: {hint}\n") == run("plan", "--model", "config.json", *words)


BAD_FLAGS = {
    "mem_fraction_static=1.5": "`mem_fraction_static` wants a number above 0 and below 1, not 1.5",
    "mem_fraction_static=-1": "`mem_fraction_static` wants a number above 0 and below 1, not -1.0",
    "mem_fraction_static=0": "`mem_fraction_static` wants a number above 0 and below 1, not 0.0",
    "mem_fraction_static=abc": "`mem_fraction_static` wants a number, not 'abc'",
    "mem_fraction_static=nan": "`mem_fraction_static` cannot be nan",
    "max_running_requests=0": "`max_running_requests` wants a whole number from 1, not 0",
    "max_running_requests=-3": "`max_running_requests` wants a whole number from 1, not -3",
    "max_mamba_cache_size=-4": "`max_mamba_cache_size` wants a whole number from 1, not -4",
    "mamba_full_memory_ratio=-1": "`mamba_full_memory_ratio` wants a number from 0, not -1.0",
    "context_length=0": "`context_length` wants a whole number from 1, not 0",
    "page_size=0": "`page_size` wants a whole number from 1, not 0",
    "tp_size=0": "`tp_size` wants a whole number from 1, not 0",
    "pp_size=1000000000000": "`pp_size` cannot be 1000000000000",
    "chunked_prefill_size=1000000000000": "`chunked_prefill_size` cannot be 1000000000000",
    "speculative_num_steps=-1": "`speculative_num_steps` wants a whole number from 0, not -1",
    "hicache_ratio=-2": "`hicache_ratio` wants a number from 0, not -2.0",
    "mamba_ssm_dtype=float99": "`mamba_ssm_dtype` wants one of float32, bfloat16, float16",
    "max_runing_requests=3": "a server has no key `max_runing_requests`",
    "mem_fraction_static": "`mem_fraction_static` gives no value",
}


@pytest.mark.parametrize(("flag", "error"), BAD_FLAGS.items())
@pytest.mark.parametrize("more", [(), ("--solve",), ("--json",)], ids=["", "--solve", "--json"])
def test_bad_flags(flag: str, error: str, more: tuple[str, ...], plan: Run) -> None:
    """
    A value that cannot be is one error, whatever is wanted of the plan.
    """
    said = plan((flag,), *more)

    assert 2 == said.status
    assert error in said.err.splitlines()[0]
    assert error in json.loads(said.out)["error"] if "--json" in more else not said.out
    assert 1 == said.err.count("error: ")
    assert 1 == said.err.count("hint: ")
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "`--model`: config.json describes no model: it is no JSON: Input data was truncated"),
        (
            json.dumps(CONFIG_27B).encode()[:200],
            "`--model`: config.json describes no model: it is no JSON: Input data was truncated",
        ),
        (b"[1]", "`--model`: config.json describes no model: it is no JSON object"),
        (b"\xff\xfe", "`--model`: config.json cannot be read: it is no UTF-8 text"),
        (b'{"a": 1}', "`--model`: config.json describes no model: it has no `num_hidden_layers`"),
        (None, "`--model`: config.json cannot be read: No such file or directory"),
    ],
    ids=["empty", "truncated", "a list", "binary", "no model", "missing"],
)
def test_bad_models(content: bytes | None, error: str, folder: Path, run: Run) -> None:
    """
    A file that describes no model is one error.
    """
    if content is not None:
        (folder / "config.json").write_bytes(content)
    said = run("plan", "--model", "config.json", "--gpu", "h100")

    assert (2, "", f"error: {error}") == (said.status, said.out, said.err.splitlines()[0])
    assert said.err.splitlines()[2].startswith("hint: ")


@pytest.mark.parametrize("name", ["config.json", "model/config.json"])
def test_what_is_no_file(name: str, folder: Path, run: Run) -> None:
    """
    A pipe is not waited for, wherever it stands.
    """
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    said = run("plan", "--model", str(path.parent if "/" in name else path), "--gpu", "h100")

    assert (2, "") == (said.status, said.out)
    assert said.err.startswith(f"error: `--model`: {path} cannot be read: it is no regular file\n")


def test_a_folder_without_a_model(folder: Path, run: Run) -> None:
    """
    The file that is missing is named.
    """
    (folder / "empty").mkdir()
    said = run("plan", "--model", "empty", "--gpu", "h100")

    assert 2 == said.status
    assert said.err.startswith(
        "error: `--model`: empty/config.json cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--weights-gib", "5"),
        ("--draft-gib", "5"),
        ("--gpu-mib", "97887"),
        ("--free-gib", "5"),
        ("--sglang", "0.5.12"),
    ],
    ids=lambda words: words[0],
)
def test_options_of_a_plan_without_a_box(words: tuple[str, ...], run: Run) -> None:
    """
    Without a model they would mean nothing.
    """
    error = f"error: `{words[0]}` is for a plan without a box\n\nhint: give `--model PATH` with it\n"

    assert Said(2, "", error) == run("plan", *words)


def test_a_card_without_a_model(run: Run) -> None:
    """
    A card is for a model; on a box cards have indices.
    """
    said = run("plan", "--gpu", "h100")

    assert 2 == said.status
    assert said.err.startswith("error: `--gpu h100`: a plan for a card needs `--model`\n")


@pytest.mark.parametrize(
    "wish",
    ["requests", "requests=", "requests=0", "requests=-1", "requests=1.5", "requests=²", "foo=3", "", "=3"],
)
def test_wishes_that_are_none(wish: str, plan: Run) -> None:
    """
    A wish is one of three words with a whole number from 1.
    """
    error = f"error: `--want {wish}` is no wish"
    hint = "hint: write `requests=16`, `context=32768` or `tokens=300000`; a whole number from 1"

    assert Said(2, "", f"{error}\n\n{hint}\n") == plan(SEED, "--solve", "--want", wish)


@pytest.mark.parametrize("wishes", [("requests=3", "requests=4"), ("requests=3,requests=4",)])
def test_a_wish_that_is_given_twice(wishes: tuple[str, ...], plan: Run) -> None:
    """
    Of two numbers neither is taken.
    """
    said = plan(SEED, "--solve", *(word for wish in wishes for word in ("--want", wish)))

    assert Said(2, "", "error: `--want requests` is given twice\n\nhint: keep one of the two\n") == said
