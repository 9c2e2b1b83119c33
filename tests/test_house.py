"""
The rules of the house that no linter knows.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from mtpdeploy.cli import main, words
from mtpdeploy.core import events
from mtpdeploy.core.diagnosis import Cause, Next
from mtpdeploy.engines.sglang.causes import KNOWLEDGE
from mtpdeploy.engines.sglang.rungs import LADDERS
from mtpdeploy.inventory.load import load
from tests.deploy.examples import EVENTS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mtpdeploy"
README = (ROOT / "README.md").read_text()

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
IMPORTED_IN = {
    "fabric": {"remote/connect.py", "remote/line.py"},
    "click": {"cli/"},
    "rich": {"cli/"},
    "jinja2": {"render.py"},
    "asyncssh": {"demo/"},
    "paramiko": {"remote/"},
    "tomlkit": {"inventory/edit.py"},
    "tenacity": {"remote/"},
}
"""Where each library may be used."""

SLEEPERS = ("clock.py", "onbox/", "demo/")
"""Where waiting is done; everything else asks a clock."""

PRINTERS = ("onbox/", "demo/site/")
"""Programs that answer on standard output; everything else tells events, or click."""

SILENT = {events.LogLines, events.Progress, events.Finished, events.Failed}
"""Events that a screen shows in its own way: log lines, bars, the table at the end, errors."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """
    Every module of the package by its path in it.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())


def imported(tree: ast.Module) -> set[str]:
    """
    The libraries that a module imports, wherever in it.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def called(tree: ast.Module) -> set[str]:
    """
    The names of the functions that a module calls.
    """
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {ast.unparse(function) for function in calls}


class TestSizes:
    def test_files_and_functions_stay_short(self) -> None:
        """
        No file over 400 lines and no function over 60.
        """
        too_long = []
        for path in [*PACKAGE.rglob("*.py"), *(ROOT / "templates").iterdir()]:
            text = path.read_text()
            name = path.relative_to(ROOT).as_posix()
            too_long += [name] if text.count("\n") > LONGEST_FILE else []
            too_long += [
                f"{name}:{node.lineno} {node.name}"
                for node in (ast.walk(ast.parse(text)) if path.suffix == ".py" else ())
                if isinstance(node, ast.FunctionDef)
                and (node.end_lineno or 0) - node.lineno > LONGEST_FUNCTION
            ]

        assert [] == too_long


class TestPlaces:
    @pytest.mark.parametrize("library", IMPORTED_IN)
    def test_a_library_is_used_in_its_room(self, library: str) -> None:
        """
        A library that is wrapped once is imported there and nowhere else.
        """
        rooms = tuple(IMPORTED_IN[library])
        outside = [n for n, tree in modules() if library in imported(tree) and not n.startswith(rooms)]

        assert [] == outside

    def test_nothing_sleeps_but_a_clock(self) -> None:
        """
        Waiting goes through a clock that a test can let jump.
        """
        calls = {"time.sleep", "sleep"}
        found = [n for n, tree in modules() if calls & called(tree) and not n.startswith(SLEEPERS)]

        assert [] == found

    def test_nothing_prints_but_programs_on_the_box(self) -> None:
        """
        Work does not print.
        """
        found = [n for n, tree in modules() if "print" in called(tree) and not n.startswith(PRINTERS)]

        assert [] == found

    def test_no_template_opts_out_of_quoting(self) -> None:
        """
        Every value is quoted for sh by the renderer; a template has no way around it.
        """
        templates = [path.read_text() for path in (ROOT / "templates").glob("*.j2")]

        assert templates
        assert not [text for text in templates if re.search(r"\|\s*safe|Raw\(|autoescape", text)]


class TestWords:
    def test_spec_alone_is_no_name(self) -> None:
        """
        In this field it means speculative: a server is a ServerSpec, speculation is mtp.
        """
        found = []
        for name, tree in modules():
            for node in ast.walk(tree):
                named = getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "attr", None)
                if named == "spec":
                    found.append(f"{name}:{getattr(node, 'lineno', 0)}")

        assert [] == found

    def test_every_event_has_a_sentence(self) -> None:
        """
        Screens are readers of one stream; an event without words is one that nobody sees.
        """
        kinds = set(get_args(events.AnyEvent))
        said = {type(event) for event in EVENTS if words.sentence(event)}

        assert kinds == {type(event) for event in EVENTS}
        assert kinds - SILENT == said - SILENT

    def test_every_cause_is_known_and_answered(self) -> None:
        """
        A cause has a remedy; one that calls for a climb is answered by a rung of the default ladder.
        """
        answered = {cause for rung in LADDERS["default"].rungs for cause in rung.causes}

        assert set(Cause) == set(KNOWLEDGE)
        assert all(known.remedy for known in KNOWLEDGE.values())
        assert set() == {c for c, known in KNOWLEDGE.items() if known.next is Next.CLIMB} - answered

    def test_every_refusal_says_what_to_do(self) -> None:
        """
        What is wrong with a box, or with a command there, is never told without a hint.
        """
        mute = []
        for name, tree in modules():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("BoxUnfit", "CommandFailed"):
                    hinted = any(keyword.arg == "hint" for keyword in node.keywords)
                    mute += [] if hinted else [f"{name}:{node.lineno}"]

        assert [] == mute


class TestDocuments:
    @pytest.mark.parametrize("name", main.COMMANDS)
    def test_every_command_is_documented(self, name: str) -> None:
        """
        It has help of its own, and stands in the README.
        """
        command = main.group.get_command(None, name)  # type: ignore[arg-type]

        assert command is not None
        assert command.help
        assert re.search(rf"`{name}[ `]", README)

    def test_every_option_named_for_up_exists(self) -> None:
        """
        The README promises no option that `up` does not have.
        """
        command = main.group.get_command(None, "up")  # type: ignore[arg-type]
        assert command is not None
        options = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        paragraph = README[README.index("`up` knows") : README.index("Progress goes to stderr")]

        assert set(re.findall(r"`(--[a-z-]+)", paragraph)) <= options

    def test_exit_statuses_agree(self) -> None:
        """
        The README and `--help` list the same ones.
        """
        in_help = set(re.findall(r"^ +(\d+) ", main.EXIT_STATUSES, re.MULTILINE))

        assert in_help == set(re.findall(r"^\| (\d+) \|", README, re.MULTILINE))

    def test_the_example_is_the_reference(self) -> None:
        """
        hosts.toml at the top level loads, with a host, a server and a ladder.
        """
        inventory = load(ROOT / "hosts.toml", environ={}, user_directory=ROOT / "nowhere")

        assert inventory.hosts
        assert inventory.servers
        assert inventory.ladders

    def test_the_gate_runs_the_readmes_line(self) -> None:
        """
        What a newcomer types to run all tests is what the gate runs.
        """
        line = next(text for text in README.splitlines() if text.endswith("-m tests"))

        assert line.removeprefix("$ ") in (ROOT / ".ci" / "run").read_text()


class TestStart:
    @pytest.mark.parametrize("option", ["--help", "--version"])
    def test_help_imports_nothing_heavy(self, option: str) -> None:
        """
        `--help` takes no second: what is heavy is imported where it is used.
        """
        program = (
            "import sys\nfrom mtpdeploy.cli.main import run\n"
            f"run([{option!r}])\nprint(*sorted(sys.modules), file=sys.stderr)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

        heavy = {
            "fabric",
            "paramiko",
            "invoke",
            "rich",
            "jinja2",
            "asyncssh",
            "tomlkit",
            "tenacity",
            "msgspec",
        }
        assert heavy & set(done.stderr.split()) <= {"msgspec"}


class TestTests:
    def test_every_test_states_its_fact_and_none_is_skipped(self) -> None:
        """
        A test without a sentence proves nobody knows what; one that is skipped proves nothing.
        """
        mute, skipped = [], []
        for path in sorted((ROOT / "tests").rglob("test_*.py")):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    mute += [] if ast.get_docstring(node) else [f"{path.name}:{node.lineno}"]
                    marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
                    skipped += [f"{path.name}:{node.lineno}"] if re.search(r"skip|xfail", marks) else []

        assert [] == mute
        assert [] == skipped

    def test_no_path_of_a_machine_and_no_registry_is_named(self) -> None:
        """
        What is committed runs anywhere.
        """
        tracked = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        named = re.compile(
            "|".join(["/w" + "ork/", "py" + r"pi\.org", "python" + "hosted", "deb" + r"\.debian"])
        )
        found = []
        for name in filter(None, tracked):
            text = (ROOT / name).read_text(errors="replace") if (ROOT / name).is_file() else ""
            found += [name] if named.search(text) else []

        assert [] == found
