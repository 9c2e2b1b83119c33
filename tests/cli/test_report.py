"""
`mtpdeploy report`: the page, what hostile text does to it (nothing), and where it goes.
"""

import json
import os
import stat
import tarfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs, to_builtins

from mtpdeploy.cli.page import page_of, recorded
from mtpdeploy.core import events
from mtpdeploy.core.outcome import Ascent
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.dossier import read_dossier
from mtpdeploy.deploy.journal import Journal
from mtpdeploy.engines.sglang import SGLANG
from tests.cli.conftest import Run
from tests.cli.html import Seen
from tests.deploy.examples import ASKED, AT, BOX, FACTS, RECORD
from tests.deploy.shelf import ID, keep
from tests.deploy.test_redaction import HOST, SECRETS

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title></head><body onload=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "' autofocus onfocus='alert(1)",
    "</pre></table></div></section>",
    "<svg><use href=http://203.0.113.9/x#y></svg>",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "]]><!-- ",
    "&lt;b&gt; &amp; &#60;script&#62;",
    "\x1b]8;;http://203.0.113.9\x07link\x1b]8;;\x07\x00\x08",
    "\u202e\u2066gnp.exe",
)


def page(run: Run, *words: str) -> Seen:
    """
    The report on standard output, parsed.
    """
    said = run("report", "-o", "-", *words)

    assert (0, "") == (said.status, said.err)
    return Seen(said.out)


def test_what_has_no_place_of_its_own_is_told_in_pairs() -> None:
    """
    What lies within another thing is named by its way there, and nothing is JSON.
    """
    found = {"weather": {"oom_kill": "4 of them"}, "lengths": [2.5, 3.0], "steps": [{"at": 1}, {"at": 2}]}

    assert [
        ("weather: oom kill", "4 of them"),
        ("lengths", "2.5, 3"),
        ("steps 1: at", "1"),
        ("steps 2: at", "2"),
    ] == recorded(found)


class TestPage:
    def test_what_it_tells(self, folder: Path, run: Run) -> None:
        """
        How it ended, every attempt with its difference, stages, memory, verdict and what the requests proved.
        """
        keep(folder / "state", "RuntimeError: Not enough memory.")
        seen = page(run)

        assert [] == seen.faults
        for text in (
            "qwen on box",
            "Ready at attempt 2 after",
            "MTP is proven with an accept length of 2.91.",
            "0: the server is up",
            "203.0.113.20:19248",
            "Linux 6.8.0-51-generic",
            "max_running_requests 512 → 48",
            "- max_running_requests = 512",
            "+ max_running_requests = 48",
            "The last line, TP0, log line 37",
            "memory left after the weights is too small for the pools (oom-kv-pool)",
            "weights loaded",
            "Forecast (before the launch)",
            "accept length 2.91 (of our own request)",
            "Also: RuntimeError: Not enough memory.",
            "What the box told afterwards oom kill RuntimeError: Not enough memory.",
            "Speculation: speculating",
            "kind at once tokens steps accepted tokens/s prose 1 256 88 2.90 63.4 code 1 - - - -",
            "1 at once: 63.4 tokens/s, 405 W of 600 W",
            "timed by the pieces of the answers, on the box",
            "mtpdeploy up qwen --on box",
            '[servers."qwen"]',
            "mtpdeploy render qwen --sglang 0.5.9",
        ):
            assert text in seen.words
        assert ["#trial-1", "#trial-2"] == seen.links
        assert "simulated" not in seen.words

    def test_a_simulated_box_is_called_so(self, folder: Path, run: Run) -> None:
        """
        Nobody takes the demo for hardware.
        """
        keep(folder / "state", facts=structs.replace(FACTS, simulated=True))

        assert "not real hardware" in page(run).words

    @pytest.mark.parametrize("text", [*HOSTILE[:-2], 'a"b\\c\nd', "é"])
    def test_the_server_can_be_asked_for_again(self, tmp_path: Path, text: str) -> None:
        """
        What it says for hosts.toml is TOML, and the same server.
        """
        asked = ASKED.with_flags(chat_template=text, lora_paths=[text, "b"]).with_env(A=text)
        dossier = read_dossier(keep(tmp_path, asked=asked), SGLANG)
        (found,) = tomllib.loads(page_of(dossier).asked)["servers"].values()

        assert (asked.env, asked.flags) == (found.pop("env"), found)

    @pytest.mark.parametrize("text", HOSTILE)
    def test_text_is_text(self, folder: Path, run: Run, text: str) -> None:
        """
        Whatever stands in a log, a flag, a name or an error is shown, and neither loads nor runs anything.
        """
        asked = ASKED.with_flags(model_path=text, chat_template=text).with_env(A=text)
        keep(folder / "state", text, host=structs.replace(BOX, name=text), asked=asked)
        seen = page(run)
        plain = page(run, "--redact")

        assert [] == seen.faults == plain.faults
        assert {"script", "img", "use"}.isdisjoint(seen.tags)
        shown = "".join(c for c in text if c.isprintable()).replace("]8;;http://203.0.113.9link]8;;", "link")
        assert " ".join(shown.split()) in seen.words
        assert not {"\x1b", "\x00", "\x08", "\u202e"} & set("".join(seen.text))

    def test_an_ascent_that_goes_on(self, folder: Path, run: Run) -> None:
        """
        What there is is told, with the word that it is not all.
        """
        path = keep(folder / "state", finished=False)
        (path / f"{ID}-1" / "outcome.json").unlink()
        (path / "ascent.json").unlink()
        seen = page(run)

        assert [] == seen.faults
        assert "Not finished: attempt 1 has no outcome in the journal yet." in seen.words
        assert "exit status none yet" in seen.words
        assert "no outcome yet" in seen.words

    def test_an_ascent_that_an_error_ended(self, folder: Path, run: Run) -> None:
        """
        The error is the end, with its exit status.
        """
        keep(folder / "state", finished=False)
        failed = events.Failed(AT + 400, error="port 30000 is <taken>", hint="stop it", exit_status=4)
        Journal(folder / "state", ID).event(failed)
        seen = page(run)

        assert "Ended after 1 attempt by an error: port 30000 is <taken>." in seen.words
        assert "exit status 4: the box lacks something, or something else is in the way" in seen.words

    @pytest.mark.parametrize("name", ["ascent.json", "events.jsonl", f"{ID}-1/attempt.json"])
    def test_damage_is_named_on_the_page(self, folder: Path, run: Run, name: str) -> None:
        """
        One note, and the rest as ever.
        """
        (keep(folder / "state") / name).write_bytes(b"{<b>\xff")
        seen = page(run)

        assert [] == seen.faults
        assert "Not everything could be read from the journal" in seen.words
        assert Path(name).name in seen.words

    def test_nothing_at_all(self, folder: Path, run: Run) -> None:
        """
        The folder of an ascent that was never begun is a page, too.
        """
        Journal(folder / "state", "20261201-051211Z-x-00000000")
        seen = page(run)

        assert [] == seen.faults
        assert "Nothing was launched, as far as the journal tells." in seen.words

    def test_a_server_without_flags(self, folder: Path, run: Run) -> None:
        """
        No model path breaks nothing.
        """
        Journal(folder / "state", "a").ascent(Ascent("a", "h", ServerSpec(name="s", flags={})))

        assert [] == page(run).faults


class TestFiles:
    def test_a_file_that_says_which(self, folder: Path, run: Run) -> None:
        """
        In the current directory, for nobody else to read; its path is printed.
        """
        keep(folder / "state")
        said = run("report")
        name = f"mtpdeploy-report-{ID}.html"

        assert (0, f"{name}\n", "") == (said.status, said.out, said.err)
        assert 0o600 == stat.S_IMODE((folder / name).stat().st_mode)
        assert (folder / name).read_text() == run("report", "-o", "-").out

    def test_nothing_is_overwritten(self, folder: Path, run: Run) -> None:
        """
        Unless `--force` says so; the page, the bundle, and a link to nowhere alike.
        """
        keep(folder / "state")
        (folder / "a.html").write_text("mine")
        (folder / "link").symlink_to(folder / "nowhere")
        for words in (("-o", "a.html"), ("--bundle", "a.html"), ("-o", "link")):
            said = run("report", *words)

            assert (2, "") == (said.status, said.out)
            assert said.err.startswith(f"error: {words[1]} is there already\n\nhint: `--force`")
        assert "mine" == (folder / "a.html").read_text()
        assert not (folder / "nowhere").exists()
        assert 0 == run("report", "-o", "a.html", "--force").status
        assert (folder / "a.html").read_text().startswith("<!DOCTYPE html>")
        assert {"a.html", "link", "state"} == {path.name for path in folder.iterdir()}

    def test_a_bundle_that_cannot_be_leaves_no_page(self, folder: Path, run: Run) -> None:
        """
        All places are looked at before anything is written.
        """
        keep(folder / "state")
        (folder / "b.tar.gz").touch()

        assert 2 == run("report", "-o", "a.html", "--bundle", "b.tar.gz").status
        assert not (folder / "a.html").exists()

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (("-o", "none/a.html"), "none/a.html cannot be written: No such file or directory"),
            (("-o", "state"), "state is a directory"),
            (("-o", "a", "--bundle", "a"), "the page and the bundle cannot be the same file"),
            (("-o", "-", "--json"), "`--json` and `--output -` exclude each other"),
            (("-o", ""), "invalid value for '-o' / '--output': it is empty"),
        ],
    )
    def test_places_that_cannot_be(self, folder: Path, run: Run, words: tuple[str, ...], error: str) -> None:
        """
        One error, and nothing is written.
        """
        keep(folder / "state")
        said = run("report", *words)

        assert (2, f"error: {error}") == (said.status, said.err.splitlines()[0])
        assert {"state"} == {path.name for path in folder.iterdir()}

    def test_no_room(self, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A file that cannot be written whole does not stay.
        """
        keep(folder / "state")

        def full(*_: object) -> object:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
        said = run("report", "-o", "a.html")

        assert (6, "error: a.html cannot be written: No space left on device") == (
            said.status,
            said.err.splitlines()[0],
        )
        assert not (folder / "a.html").exists()

    def test_a_name_that_is_no_unicode(self, folder: Path, run: Run) -> None:
        """
        Is written to, and told as far as JSON can hold it.
        """
        keep(folder / "state")
        name = os.fsdecode(b"a-\xff.html")
        told = json.loads(run("report", "-o", name, "--json").out)

        assert ["a-\ufffd.html"] == told["written"]
        assert (folder / name).exists()

    def test_for_programs(self, folder: Path, run: Run) -> None:
        """
        What was written, of which ascent, and how that ended.
        """
        keep(folder / "state")
        told = json.loads(run("report", "-o", "a.html", "--bundle", "b.tar.gz", "--json").out)

        assert {
            "written": ["a.html", "b.tar.gz"],
            "finished": True,
            "ascent": ID,
            "exit_status": 0,
            "problems": [],
        } == told


class TestChoice:
    def test_the_newest_or_the_one_that_is_named(self, folder: Path, run: Run) -> None:
        """
        By its whole name, how it begins, or its last part; on a host.
        """
        keep(folder / "state", ascent="20261202-000000Z-qwen-22222222", host=structs.replace(BOX, name="b"))
        keep(folder / "state")
        for words, place in {
            (): "qwen on b",
            ("latest",): "qwen on b",
            ("22222222",): "qwen on b",
            ("2222",): "qwen on b",
            (ID,): "qwen on box",
            ("20261201",): "qwen on box",
            ("--on", "box"): "qwen on box",
            ("latest", "--on", "box"): "qwen on box",
        }.items():
            assert f"{place}: mtpdeploy report" in page(run, *words).words

    def test_a_bundle_goes_into_a_file(self, folder: Path, run: Run) -> None:
        """
        `-` is no name of one.
        """
        keep(folder / "state")
        said = run("report", "--bundle", "-")

        assert (2, "") == (said.status, said.out)
        assert "`--bundle` needs the name of a file" in said.err
        assert not (folder / "-").exists()

    def test_history_has_those_without_an_end(
        self, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        One that goes on or was interrupted, one that was refused, and one of which nothing was launched.
        """
        monkeypatch.setenv("COLUMNS", "300")
        keep(folder / "state", finished=False)
        journal = Journal(folder / "state", "20261203-000000Z-qwen-33333333")
        journal.client("ada@laptop", BOX, ASKED, FACTS, AT)
        journal.event(events.Failed(AT, error="no GPU is free", hint="", exit_status=4))
        Journal(folder / "state", "20261202-000000Z-qwen-22222222").client("a@b", BOX, ASKED, FACTS, AT)
        attempt = Journal(folder / "state", "20261204-000000Z-qwen-44444444")
        attempt.attempt(RECORD, {"attempt.json": json.dumps(to_builtins(RECORD))})
        (folder / "state" / "ascents" / "empty").mkdir()

        told, documents = " ".join(run("history").out.split()), json.loads(run("history", "--json").out)

        assert ["44444444", "33333333", "22222222", ID[-8:]] == [one["ascent"][-8:] for one in documents]
        assert all(one["ascent"][-8:] in told for one in documents)
        assert "no outcome yet" in told
        assert "ended by an error: no GPU is free" in told
        assert "nothing was launched" in told
        assert [None, 4, None, None] == [one["exit_status"] for one in documents]
        assert [None, "no GPU is free", None, None] == [one["error"] for one in documents]
        assert [RECORD.run] == documents[0]["without_outcome"]

    def test_history_names_them(self, folder: Path, run: Run) -> None:
        """
        What stands there is enough.
        """
        keep(folder / "state")
        row = run("history").out.splitlines()[2].split()

        assert ID.rpartition("-")[2] == row[2]
        assert [] == page(run, row[2]).faults

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (("nothing",), "there is no ascent `nothing` in the journal"),
            (("--on", "elsewhere"), "there is no ascent on `elsewhere` in the journal"),
            (("2026",), "several ascents are meant by `2026`"),
        ],
    )
    def test_none_or_several(self, folder: Path, run: Run, words: tuple[str, ...], error: str) -> None:
        """
        The newest are listed to choose from.
        """
        keep(folder / "state")
        keep(folder / "state", ascent="20261202-000000Z-qwen-22222222")
        said = run("report", *words)

        assert (2, f"error: {error}") == (said.status, said.err.splitlines()[0])
        assert ID in said.err

    def test_no_journal(self, run: Run) -> None:
        """
        Says what makes one.
        """
        said = run("report")

        assert (2, "error: there is no ascent in the journal") == (said.status, said.err.splitlines()[0])
        assert "mtpdeploy up" in said.err


def everything(folder: Path) -> bytes:
    """
    Every byte of a bundle: names and contents.
    """
    with tarfile.open(folder / "b.tar.gz") as tar:
        found = [member.name.encode() for member in tar.getmembers()]
        files = [tar.extractfile(member) for member in tar.getmembers()]
        return b"\n".join([*found, *(file.read() for file in files if file is not None)])


TELLING = (
    "ada",
    "eve",
    "carol",
    "laptop",
    "gpu-7.corp",
    "203.0.113.20",
    "198.51.100.7",
    "2001:db8::99",
    "bastion.example.com",
    "inner.corp.example",
    "id_work",
    "/data/people/zoe",
    "mina",
)
"""What HOST, its client and the texts below tell."""

LINES = st.lists(
    st.sampled_from([*TELLING[:11], "198.51.100.7", "/home/mina/x", "/data/people/zoe/m", *SECRETS])
    | st.text(st.characters(exclude_categories=["Cs", "L", "N"]), max_size=4),
    max_size=8,
).map(" ".join)


class TestRedaction:
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(text=LINES)
    def test_nothing_that_tells_is_in_any_byte(self, folder: Path, run: Run, text: str) -> None:
        """
        Of the page and of every file in the bundle; wherever the journal has it.
        """
        facts = structs.replace(FACTS, user="mina", home="/data/people/zoe", work_dir="/data/people/zoe/.mtp")
        asked = ASKED.with_flags(model_path="/data/people/zoe/m", chat_template=text).with_env(A=text)
        ascent = f"20261201-051211Z-qwen-{os.urandom(4).hex()}"
        keep(folder / "state", text, host=HOST, facts=facts, asked=asked, ascent=ascent)
        said = run("report", ascent, "--redact", "-o", "p.html", "--bundle", "b.tar.gz", "--force")
        content = (folder / "p.html").read_bytes() + everything(folder)

        assert 0 == said.status
        assert [] == Seen((folder / "p.html").read_text()).faults
        assert [] == [secret for secret in SECRETS if secret.encode() in content]
        for name in TELLING:
            special = len(name) > 6
            found = name.encode() in content if special else f" {name} ".encode() in content
            assert not found, name

    def test_secrets_are_left_out_always(self, folder: Path, run: Run) -> None:
        """
        A server that prints its key prints it into no report.
        """
        text = f"server_args=ServerArgs(api_key='PLAINWORD', port=1) HF_TOKEN=PLAINWORD {SECRETS[0]}"
        keep(folder / "state", text)
        said = run("report", "-o", "p.html", "--bundle", "b.tar.gz")
        content = (folder / "p.html").read_bytes() + everything(folder)

        assert 0 == said.status
        assert b"PLAINWORD" not in content
        assert SECRETS[0].encode() not in content
        assert b"203.0.113.20" in content

    def test_one_placeholder_in_all_files(self, folder: Path, run: Run) -> None:
        """
        What is compared with a line of another file can be found there.
        """
        keep(folder / "state", "no route to 198.51.100.7")
        run("report", "--redact", "--bundle", "b.tar.gz")
        with tarfile.open(folder / "b.tar.gz") as tar:
            files = [tar.extractfile(member) for member in tar.getmembers()]
            texts = [file.read().decode() for file in files if file is not None]
        placeholders = {text.partition("no route to ")[2][:9] for text in texts if "no route to " in text}

        assert 1 == len(placeholders)
        assert next(iter(placeholders)).startswith("address-")
