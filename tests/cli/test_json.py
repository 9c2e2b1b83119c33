"""
`--json`: whatever happens, exactly one document on standard output.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import encode

from mtpdeploy.cli.main import COMMANDS, group
from mtpdeploy.demo.home import DemoHome
from mtpdeploy.demo.place import home as home_of
from tests.cli.conftest import Run, Said
from tests.cli.test_refusals import HOSTS
from tests.deploy.examples import ASCENT
from tests.fakes.sshd import free_port

ON_A_BOX = [("up", "qwen"), ("plan", "qwen"), ("attach",), ("status",), ("verify",), ("down",)]
WITH_A_FILE = [*ON_A_BOX, ("up", "qwen", "--dry-run"), ("rungs",), ("hosts",), ("config", "explain")]
ALL = [*WITH_A_FILE, ("history",), ("report",), ("diagnose", "server.log")]
WITH_EVENTS = [("up", "qwen"), ("attach",)]


def words_of(command: tuple[str, ...]) -> str:
    """
    A command as the name of a case.
    """
    return " ".join(command)


def told(said: Said) -> Any:
    """
    The one error document, which says what stands on stderr and what the process left with.
    """
    document = json.loads(said.out)

    assert {"error", "hint", "exit_status"} == set(document)
    assert said.status == document["exit_status"]
    assert document["error"] in said.err
    assert all(line.strip() in said.err for line in document["hint"].splitlines())
    return document


def test_every_command_that_has_it_is_tried_here() -> None:
    """
    The list of this file is complete.
    """
    found = set()
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        subcommands = getattr(command, "commands", {}).items()
        for words, each in [((name,), command), *(((name, sub), each) for sub, each in subcommands)]:
            if any("--json" in parameter.opts for parameter in each.params):
                found.add(words)

    assert found == {words if words[0] == "config" else words[:1] for words in ALL}


@pytest.mark.parametrize("command", WITH_A_FILE, ids=words_of)
def test_a_wrong_file(command: tuple[str, ...], folder: Path, run: Run) -> None:
    """
    An error of hosts.toml is the document.
    """
    (folder / "hosts.toml").write_text("[hosts.a")

    document = told(run(*command, "--json"))

    assert (2, True) == (document["exit_status"], document["error"].startswith("`hosts.toml`, line 1"))


@pytest.mark.parametrize("command", ALL, ids=words_of)
def test_a_wrong_command_line(command: tuple[str, ...], run: Run) -> None:
    """
    So is an option that does not exist, before or after `--json`.
    """
    documents = [told(run(*command, *words)) for words in (("--json", "--nix"), ("--nix", "--json"))]

    assert [2, 2] == [document["exit_status"] for document in documents]
    assert all(document["error"].startswith("no such option") for document in documents)


@pytest.mark.parametrize("command", ON_A_BOX, ids=words_of)
def test_an_unreachable_box(
    command: tuple[str, ...], folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    So is a box where nothing listens.
    """
    monkeypatch.setattr("mtpdeploy.remote.connect.CONNECT_WAITS", (0.0, 0.0, 0.0, 0.0))
    (folder / "hosts.toml").write_text(HOSTS)

    document = told(run(*command, "--on", f"root@127.0.0.1:{free_port()}", "--json"))

    assert (3, True) == (document["exit_status"], "nothing listens" in document["error"])


@pytest.mark.parametrize("command", ALL, ids=words_of)
@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (ZeroDivisionError("one by \udcff"), 70, "a bug in mtpdeploy: ZeroDivisionError: one by ?"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["a bug", "Ctrl-C"],
)
def test_a_sudden_end(
    raised: BaseException,
    status: int,
    error: str,
    command: tuple[str, ...],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    So are a bug of our own and a Ctrl-C.
    """

    def end(*_: object, **__: object) -> None:
        raise raised

    hearts = (("cli.choose", "load"), ("inventory.load", "load"), ("deploy.journal", "history"))
    others = (("cli.reporting", "state_directory"), ("deploy.inquest", "hold"))
    for place, name in (*hearts, *others):
        monkeypatch.setattr(importlib.import_module(f"mtpdeploy.{place}"), name, end)

    said = run(*command, "--json")
    document = json.loads(said.out)

    assert (status, error) == (document["exit_status"], document["error"])
    assert status == said.status


def test_an_early_interrupt() -> None:
    """
    So is a Ctrl-C while the program still loads.
    """
    code = (
        "import sys, builtins\n"
        "from mtpdeploy.__main__ import main\n"
        "real = builtins.__import__\n"
        "def load(name, *rest):\n"
        "    if name == 'mtpdeploy.cli.main': raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = load\n"
        "main()\n"
    )
    ends = [
        subprocess.run([sys.executable, "-c", code, "up", form], capture_output=True, check=False)
        for form in ("--json", "--json-events", "--no-log")
    ]
    document, event = (json.loads(end.stdout) for end in ends[:2])

    assert [130] * 3 == [end.returncode for end in ends]
    assert [b"interrupted\n"] * 3 == [end.stderr for end in ends]
    assert {"error": "interrupted", "hint": "", "exit_status": 130} == document
    assert {**document, "event": "error", "at": event["at"]} == event
    assert b"" == ends[2].stdout


class TestEvents:
    @pytest.mark.parametrize("command", WITH_EVENTS, ids=words_of)
    @pytest.mark.parametrize("wrong", [("--nix",), ("--config", "nowhere.toml")], ids=["option", "file"])
    def test_an_error_is_the_last_line(
        self, command: tuple[str, ...], wrong: tuple[str, ...], run: Run
    ) -> None:
        """
        With `--json-events` an error is an event, with the moment as every other.
        """
        said = run(*command, "--json-events", *wrong)
        event = json.loads(said.out)

        assert 1 == said.out.count("\n")
        assert ["at", "error", "event", "exit_status", "hint"] == sorted(event)
        assert ("error", 2) == (event["event"], event["exit_status"])
        assert event["error"] in said.err

    @pytest.mark.parametrize("command", WITH_EVENTS, ids=words_of)
    def test_both_forms_at_once(self, command: tuple[str, ...], run: Run) -> None:
        """
        One document and a line an event cannot both have standard output; the refusal fits either reader.
        """
        said = run(*command, "--json", "--json-events")

        assert 2 == said.status
        assert "`--json` and `--json-events` exclude each other" == json.loads(said.out)["error"]

    def test_a_rehearsal_has_none(self, run: Run) -> None:
        """
        `--dry-run` tells all at once.
        """
        said = run("up", "--dry-run", "--json-events")

        assert (2, 1) == (said.status, said.out.count("\n"))
        assert "error: `--dry-run` has no events to tell: use `--json`" in said.err


def test_an_ascent_that_was_left_has_no_status(folder: Path, run: Run) -> None:
    """
    What the history does not know of an ascent is null.
    """
    past = folder / "state" / "ascents" / ASCENT.id / "ascent.json"
    past.parent.mkdir(parents=True)
    past.write_bytes(encode(structs.replace(ASCENT, outcomes=())))

    assert [None] == [ascent["exit_status"] for ascent in json.loads(run("history", "--json").out)]


def test_a_list_has_it_and_a_change_has_not(run: Run) -> None:
    """
    `hosts --json add` would print nothing.
    """
    document = told(run("hosts", "--json", "add", "n", "ssh root@h"))

    assert "`--json` is for the list of hosts, not for `add`" == document["error"]


class TestOnTheDemoBox:
    @pytest.fixture
    def port(self, folder: Path) -> Iterator[int]:
        """
        A port for the server; nothing of the demo box lives on.
        """
        yield free_port()
        home = DemoHome(home_of(folder / "state").resolve(), "python3")
        if home.path.is_dir():
            home.clean()

    def test_launched_and_left(self, port: int, run: Run) -> None:
        """
        `--detach` is a success in the document, too.
        """
        said = run("up", "--on", "demo:speed=3000", "--port", str(port), "--detach", "--json")
        document = json.loads(said.out)

        assert (0, 0) == (said.status, document["exit_status"])
        assert (False, []) == (document["ready"], document["attempts"])

    def test_a_rehearsal(self, port: int, run: Run) -> None:
        """
        Script, ladder, and what stands in the way of it, in one document.
        """
        said = run("up", "--on", "demo", "--port", str(port), "--dry-run", "--json")
        document = json.loads(said.out)

        assert (0, 0) == (said.status, document["exit_status"])
        assert "launch_server" in document["script"]
        assert {"name", "answers", "gives_up"} == set(document["ladder"]["rungs"][0])
        assert "default" == document["ladder"]["name"]
        assert (None, None, []) == (document["problem"], document["already_running"], document["in_the_way"])

    @pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "document"])
    def test_a_rehearsal_of_what_cannot_be(self, form: tuple[str, ...], port: int, run: Run) -> None:
        """
        A box that is not fit ends the rehearsal with the status of `up`; all is printed before.
        """
        said = run("up", "--on", "demo", "--port", str(port), "--gpu", "99", "--dry-run", *form)

        assert 4 == said.status
        assert "launch_server" in said.out
        assert "error: `demo` has no GPU 99" in said.err
        assert not form or ("`demo` has no GPU 99", 4) == tuple(
            json.loads(said.out)[key] for key in ("problem", "exit_status")
        )
