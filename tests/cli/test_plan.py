"""
`mtpdeploy plan` without a box: what it shows, what it writes, and what it refuses.
"""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from mtpdeploy.core.cards import CARDS
from tests.cli.conftest import Run, Said
from tests.engines.sglang.sizing.models import CONFIG_27B

DRAFTED = (
    "speculative_algorithm=EAGLE",
    "speculative_num_steps=3",
    "speculative_eagle_topk=1",
    "speculative_num_draft_tokens=4",
    "attention_backend=triton",
    "mamba_scheduler_strategy=extra_buffer",
)
SEED = (*DRAFTED, "mem_fraction_static=0.80", "max_running_requests=512")
FITTING = (*DRAFTED, "mem_fraction_static=0.90", "max_running_requests=16")
FROM_LOGS = {
    "max_mamba_cache_size",
    "conv_state_gib",
    "ssm_state_gib",
    "intermediate_ssm_gib",
    "intermediate_conv_gib",
    "kv_tokens",
    "kv_k_gib",
    "kv_v_gib",
    "draft_kv_gib",
    "max_running_requests",
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan(folder: Path, run: Run) -> Run:
    """
    Plans a server with these flags for the 27B in bf16 on a card of 97,887 MiB, with further words.
    """
    (folder / "config.json").write_text(json.dumps(CONFIG_27B))

    def call(flags: tuple[str, ...], *words: str) -> Said:
        settings = [word for flag in flags for word in ("--set", flag)]
        given = ["--model", "config.json", "--weights-gib", "51.05", "--gpu", "rtx-pro-6000"]
        return run("plan", *given, *settings, *words)

    return call


class TestText:
    """
    A bar, a table and a verdict.
    """

    def test_a_server_that_fits(self, plan: Run) -> None:
        """
        The case of the issue: 9 requests and about 252,000 tokens at 0.90 with 0.5.23.
        """
        said = plan(FITTING)
        lines = said.out.splitlines()

        assert (0, "") == (said.status, said.err)
        assert {"█", "▓", "·"} <= set(lines[0])
        assert any(line.startswith("fits: 9 requests at a time, 252,") for line in lines)
        assert any("max_mamba_cache_size 48" in line and "max_running_requests 9" in line for line in lines)
        assert ["weights", "draft weights", "recurrent state", "draft states"] == [
            name
            for name in ("weights", "draft weights", "recurrent state", "draft states")
            if any(f" {name} " in line for line in lines)
        ]

    @pytest.mark.parametrize("fraction", ["0.80", "0.90", "0.95"])
    def test_the_seed_does_not_fit(self, fraction: str, plan: Run) -> None:
        """
        512 requests under 0.5.12: the reason, SGLang's own words, and exit status 1.
        """
        said = plan(
            (*DRAFTED, f"mem_fraction_static={fraction}", "max_running_requests=512"), "--sglang", "0.5.12"
        )

        assert (1, "") == (said.status, said.err)
        assert "does not fit: 512 requests need 293.62 GiB of draft states; " in said.out
        assert (
            "SGLang would say: Not enough memory. Please try to increase --mem-fraction-static." in said.out
        )
        assert "┃ lacking " in said.out

    def test_a_flag_by_any_of_its_names(self, plan: Run) -> None:
        """
        The name of the strategy changed in 0.5.14; both mean the same everywhere.
        """
        newer = tuple(
            flag.replace("mamba_scheduler_strategy", "mamba_radix_cache_strategy") for flag in FITTING
        )

        assert plan(FITTING).out == plan(newer).out
        assert plan(FITTING, "--sglang", "0.5.12").out == plan(newer, "--sglang", "0.5.12").out

    def test_a_version_that_is_not_known(self, plan: Run) -> None:
        """
        It is planned as the newest one, and says so.
        """
        said = plan(FITTING, "--sglang", "0.6.1")

        assert "note: SGLang 0.6.1 is not known here; planned as 0.5.23" in said.out.splitlines()

    @pytest.mark.parametrize("build", ["0.5.12rc1", "0.5.12.dev3+gabc"])
    def test_a_build_on_the_way_to_a_release(self, build: str, plan: Run) -> None:
        """
        It is planned as that release, not as the newest one.
        """
        said, known = (plan(FITTING, "--sglang", version).out for version in (build, "0.5.12"))

        assert f"note: SGLang {build} is not known here; planned as 0.5.12" in said.splitlines()
        assert known.splitlines() == [line for line in said.splitlines() if build not in line]

    def test_an_architecture_that_is_not_known(self, folder: Path, run: Run) -> None:
        """
        It is planned by its shape, and says so.
        """
        (folder / "config.json").write_text(json.dumps({**CONFIG_27B, "architectures": ["NewForCausalLM"]}))
        said = run("plan", "--model", "config.json", "--gpu", "h200")

        assert 0 == said.status
        assert "note: `NewForCausalLM` is not known here; planned as its config.json describes it" in said.out

    def test_a_card_by_its_memory(self, plan: Run, run: Run) -> None:
        """
        `--gpu-mib` and `--free-gib` describe any card.
        """
        named = plan(FITTING, "--free-gib", "94.32", "--json")
        settings = [word for flag in FITTING for word in ("--set", flag)]
        card = ["--gpu-mib", "97887", "--free-gib", "94.32", "--weights-gib", "51.05"]
        said = run("plan", "--model", "config.json", *card, *settings, "--json")

        assert json.loads(named.out) == json.loads(said.out)

    def test_a_byte_order_mark(self, folder: Path, plan: Run) -> None:
        """
        A config.json that some editor has put one before is read all the same.
        """
        without = plan(FITTING)
        (folder / "config.json").write_text("\ufeff" + json.dumps(CONFIG_27B), "utf-8")

        assert without == plan(FITTING)

    def test_the_cards(self, run: Run) -> None:
        """
        `--gpu list` names every card that has a name, with or without a model, in words and as data.
        """
        rows = run("plan", "--gpu", "list").out.splitlines()[2:]
        found = json.loads(run("plan", "--gpu", "list", "--json").out)["cards"]

        assert [card.name for card in CARDS] == [row.split()[0] for row in rows]
        assert [card.name for card in CARDS] == [card["name"] for card in found]

    def test_a_folder_with_its_weights(self, folder: Path, run: Run) -> None:
        """
        Of a folder the files tell what is loaded.
        """
        (folder / "config.json").write_text(json.dumps(CONFIG_27B))
        index = {"metadata": {"total_size": 55 << 30}, "weight_map": {"mtp.fc.weight": "a.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        said = run("plan", "--model", ".", "--gpu", "rtx-pro-6000", "--json")

        assert pytest.approx(55 - 0.79, abs=0.01) == json.loads(said.out)["weights_gib"]

    def test_a_server_of_hosts_toml(self, folder: Path, plan: Run) -> None:
        """
        Its flags are planned for the model that is named.
        """
        flags = "\n".join(
            f'{name} = "{value}"' for name, _, value in (flag.partition("=") for flag in DRAFTED[:1])
        )
        (folder / "hosts.toml").write_text(
            f'[servers.qwen]\nmodel_path = "m"\nmax_running_requests = 3\n{flags}\n'
        )
        said = plan((), "qwen", "--json")

        assert 3 == json.loads(said.out)["max_running_requests"]


class TestDocument:
    """
    `--json`: one document with the names that programs rely on.
    """

    def test_a_server_that_fits(self, plan: Run) -> None:
        """
        All figures that the issue names are there.
        """
        said = plan(FITTING, "--json")
        found = json.loads(said.out)

        assert (0, "", "fits", None) == (said.status, said.err, found["verdict"], found["error"])
        assert (0.9, 48, 9) == (
            found["mem_fraction_static"],
            found["max_mamba_cache_size"],
            found["max_running_requests"],
        )
        assert set() == {name for name in FROM_LOGS | {"left_gib"} if not found[name]}
        assert pytest.approx(found["total_gib"]) == sum(line["gib"] for line in found["lines"])

    def test_a_server_that_does_not(self, plan: Run) -> None:
        """
        SGLang's text stands in `error`; of pools that are never made it only tells how far they are off.
        """
        said = plan(SEED, "--json", "--sglang", "0.5.12")
        found = json.loads(said.out)

        assert (1, "does not fit", "oom-kv-pool") == (said.status, found["verdict"], found["cause"])
        assert found["error"].startswith("Not enough memory. Please try to increase --mem-fraction-static.")
        assert {"max_mamba_cache_size"} == {name for name in FROM_LOGS if found[name]}
        assert FROM_LOGS <= set(found)
        assert found["pool_margin_gib"] < 0


class TestDrawing:
    """
    `--svg`: the bar as a drawing.
    """

    @pytest.mark.parametrize("flags", [FITTING, SEED], ids=["fits", "does not fit"])
    def test_well_formed(self, flags: tuple[str, ...], folder: Path, plan: Run) -> None:
        """
        A drawing of every line, whose bar is as long as the card, in that order.
        """
        plan(flags, "--svg", "bar.svg")
        root = ET.fromstring((folder / "bar.svg").read_text("utf-8"))  # noqa: S314 - our own file
        titles = [title.text or "" for title in root.iter(f"{SVG}title")]
        texts = [text.text or "" for text in root.iter(f"{SVG}text")]

        assert f"{SVG}svg" == root.tag
        assert titles[0].startswith("driver, context and others: ")
        assert titles[1].startswith("weights: ")
        assert "the server on 95.6 GiB, SGLang 0.5.23" == texts[0]

    def test_the_text_is_shown_all_the_same(self, plan: Run) -> None:
        """
        A drawing is written beside what is shown.
        """
        assert plan(FITTING).out == plan(FITTING, "--svg", "bar.svg").out


class TestCompare:
    """
    `--compare`: several values of one field side by side.
    """

    def test_text(self, plan: Run) -> None:
        """
        A row for each value, in the order given.
        """
        said = plan(FITTING[:-2], "--compare", "max_running_requests=4,16,512")
        first, _, heading, _, *rows = said.out.splitlines()

        assert (0, "max_running_requests:", "value") == (said.status, first, heading.split()[0])
        assert ["4", "16", "512"] == [row.split()[0] for row in rows if not row.startswith(" ")]

    def test_a_long_name_breaks_no_value(self, plan: Run) -> None:
        """
        Values stay whole whatever the field is called.
        """
        said = plan(FITTING[:-2], "--compare", "mamba_radix_cache_strategy=extra_buffer,extra_buffer_lazy")
        rows = [line.split()[0] for line in said.out.splitlines()[4:] if not line.startswith(" ")]

        assert ["extra_buffer", "extra_buffer_lazy"] == rows

    @pytest.mark.parametrize(("values", "status"), [("512,256", 1), ("512,4", 0)])
    @pytest.mark.parametrize("more", [(), ("--json",)], ids=["", "--json"])
    def test_where_none_fits(self, values: str, status: int, more: tuple[str, ...], plan: Run) -> None:
        """
        Exit status 1, as for one that does not; 0 where any does.
        """
        words = ("--compare", f"max_running_requests={values}", "--sglang", "0.5.12", *more)

        assert status == plan(DRAFTED, *words).status

    def test_document(self, plan: Run) -> None:
        """
        A whole forecast for each value.
        """
        said = plan(DRAFTED, "--compare", "mem_fraction_static=0.8,0.9", "--json")
        found = json.loads(said.out)

        assert ["mem_fraction_static=0.8", "mem_fraction_static=0.9"] == list(found)
        assert found["mem_fraction_static=0.8"]["kv_tokens"] < found["mem_fraction_static=0.9"]["kv_tokens"]


class TestRanks:
    """
    Weights are given as SGLang prints them: those of one GPU, whatever the parallelism.
    """

    @pytest.mark.parametrize("size", [1, 2, 4])
    def test_weights_of_one_gpu(self, size: int, folder: Path, run: Run) -> None:
        """
        The budget of one GPU has the weights that were given.
        """
        (folder / "config.json").write_text(json.dumps(CONFIG_27B))
        words = ("--weights-gib", "12.5", "--draft-gib", "1.4", "--set", f"tp_size={size}")
        said = run("plan", "--model", "config.json", "--gpu", "h200", *words, "--json")
        lines = {line["name"]: line["gib"] for line in json.loads(said.out)["lines"]}

        assert pytest.approx(12.5) == lines["weights"]


class TestSolve:
    """
    `--solve`: from a wish to a configuration.
    """

    @pytest.mark.parametrize(
        "want",
        [(), ("requests=16",), ("context=32768",), ("tokens=300000",), ("requests=8,context=16384",)],
        ids=lambda want: " ".join(want) or "none",
    )
    @pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.23"])
    def test_each_wish(self, want: tuple[str, ...], version: str, plan: Run) -> None:
        """
        What is found fits and gives what is wanted, names its concessions, and says why the asked one cannot.
        """
        wishes = [word for one in want for word in ("--want", one)]
        said = plan(SEED, "--solve", *wishes, "--sglang", version, "--json")
        found: dict[str, Any] = json.loads(said.out)
        forecast, asked = found["solution"]["forecast"], found["asked"]

        assert (0, "fits") == (said.status, forecast["verdict"])
        assert found["solution"]["concessions"]
        # From 0.5.13 on states are counted by request, and as many run as there is room for.
        before = version in ("0.5.9", "0.5.12")
        assert ("does not fit" if before else "fits") == asked["verdict"]
        assert ("512 requests need " in asked["reason"]) is before
        wish = found["wish"]
        requests = wish["requests"] or 1
        assert forecast["max_running_requests"] >= requests
        assert forecast["kv_tokens"] >= max(wish["tokens"] or 1, (wish["context"] or 1) * requests)

    def test_text(self, plan: Run) -> None:
        """
        Why not as asked, what it concedes and costs, and the command line that brings it up.
        """
        said = plan(SEED, "--solve", "--want", "requests=16", "--sglang", "0.5.12")
        lines = said.out.splitlines()

        assert 0 == said.status
        assert lines[0].startswith("asked: does not fit: 512 requests need 293.62 GiB of draft states; ")
        assert any("max_running_requests 512 → 16" in line for line in lines)
        assert any(line.startswith("16 requests: fits: 16 requests at a time, ") for line in lines)
        assert lines[-1].startswith("mtpdeploy up SERVER --on HOST --set ")
        assert "--set max_running_requests=16" in lines[-1]
        assert "max_running_requests=512" not in lines[-1]
        assert "--set speculative_algorithm=EAGLE" in lines[-1]

    def test_what_it_has_less_of(self, plan: Run) -> None:
        """
        A setting that costs no quality may cost tokens; that is said.
        """
        said = plan(FITTING, "--solve", "--want", "requests=24", "--sglang", "0.5.23")

        assert 0 == said.status
        assert re.search(r"(?m)^less than asked would have: tokens [\d,]+ → [\d,]+", said.out)

    def test_what_cannot_be(self, plan: Run) -> None:
        """
        Where nothing gives what is wanted it says so; exit status 1.
        """
        said = plan(SEED, "--solve", "--want", "tokens=100000000")
        document = plan(SEED, "--solve", "--want", "tokens=100000000", "--json")

        assert 1 == said.status
        assert re.search(
            r"(?m)^nothing fits: no configuration gives 100,000,000 tokens: even with every concession \d",
            said.out,
        )
        assert (1, None) == (document.status, json.loads(document.out)["solution"])
