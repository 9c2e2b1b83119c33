import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mtpdeploy.core.launch import LONGEST_WORD
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.engines.base import Command
from mtpdeploy.errors import ConfigError
from mtpdeploy.render import Raw, comment, quoted, render_launch
from tests.onbox.runs import LOG, SERVER, attempt_of

RECORDER = """
import json, os, sys
words = [os.fsencode(word).hex() for word in sys.argv]
variables = {os.fsdecode(name): value.hex() for name, value in os.environb.items()}
open("recorded", "w").write(json.dumps([words, variables]))
"""

NASTY = [
    "$(touch canary)",
    "`touch canary`",
    "'; touch canary; '",
    '"; touch canary; "',
    "\n touch canary\n",
    "a\\\nb\\",
    "-n",
    "--",
    "",
    "~/x $HOME * ? [a]",
    "#\r\t\x01\x7f\x85\u2028😀é",
    "{{ 7 * 7 }} {% raw %}",
    "x" * 100_000,
]

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


def rendered(work_dir: Path, argv: list[list[str]], env: dict[str, str], **given: object) -> dict[str, str]:
    """
    The files of a run that starts a recording server with `argv`.
    """
    first = (sys.executable, "-I", "-S", "-X", "utf8", "-c", RECORDER)
    command = Command(argv=(first, *(tuple(line) for line in argv)), env={})
    arguments: dict[str, object] = {
        "run": "r",
        "run_dir": str(work_dir),
        "log": LOG,
        "attempt": attempt_of("r"),
        "command": command,
        "env": env,
        "secrets": (),
        "secrets_file": "",
        "python": sys.executable,
        "template_dir": None,
    }
    return render_launch(**{**arguments, **given})  # type: ignore[arg-type]


def started(work_dir: Path, files: dict[str, str], **env: str) -> tuple[list[bytes], dict[str, bytes]]:
    """
    What the server of rendered files was started with: its words and its variables.
    """
    for name, text in files.items():
        (work_dir / name).write_bytes(text.encode())
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(work_dir), **env}
    subprocess.run(["sh", str(work_dir / "launch.sh")], env=variables, check=True, stderr=subprocess.DEVNULL)
    words, found = json.loads((work_dir / "recorded").read_text())
    return [bytes.fromhex(word) for word in words], {name: bytes.fromhex(v) for name, v in found.items()}


@given(words=st.lists(TEXT, max_size=8), values=st.lists(TEXT, max_size=8))
@example(words=NASTY, values=NASTY)
@settings(max_examples=40, deadline=None)
def test_any_value_arrives_as_it_was(words: list[str], values: list[str]) -> None:
    """
    Every word and every variable reaches the server byte for byte, and nothing in them is run.
    """
    env = {f"V{number}": value for number, value in enumerate(values)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        argv, variables = started(folder, rendered(folder, [["--flag", *words]], env))
        canary = list(folder.rglob("canary"))

    assert [b"-c", b"--flag", *(word.encode() for word in words)] == argv
    assert {name: value.encode() for name, value in env.items()} == {n: variables[n] for n in env}
    assert [] == canary


def test_values_in_comments_end_no_line(tmp_path: Path) -> None:
    """
    Names and concessions that the script's comments repeat cannot become commands.
    """
    asked = ServerSpec(name="q\ntouch canary", flags={"model_path": "/m", "x": "\rtouch canary\n"})
    attempt = attempt_of("r", asked)
    started(tmp_path, rendered(tmp_path, [], {}, attempt=attempt, run="r\ntouch canary"))

    assert [] == list(tmp_path.rglob("canary"))


def test_always_exported_unless_given(tmp_path: Path) -> None:
    """
    The server's output is whole, unbuffered UTF-8 unless the user says otherwise, and carries the run's name.
    """
    _, variables = started(tmp_path, rendered(tmp_path, [], {"PYTHONUNBUFFERED": "0", "MTPDEPLOY_RUN": "no"}))
    found = {name: variables[name] for name in ("PYTHONUNBUFFERED", "PYTHONUTF8", "LC_ALL", "MTPDEPLOY_RUN")}

    expected = {"PYTHONUNBUFFERED": b"0", "PYTHONUTF8": b"1", "LC_ALL": b"C.UTF-8", "MTPDEPLOY_RUN": b"r"}
    assert expected == found


def test_command_wins_over_host(tmp_path: Path) -> None:
    """
    A variable of the server replaces the host's of the same name.
    """
    command = Command(argv=((sys.executable, "-c", RECORDER),), env={"A": "server"})
    _, variables = started(tmp_path, rendered(tmp_path, [], {"A": "host", "B": "host"}, command=command))

    assert (b"server", b"host") == (variables["A"], variables["B"])


def test_secrets_come_from_their_file_alone(tmp_path: Path) -> None:
    """
    Wanted secrets reach the server, others of the file do not, and the script holds none of them.
    """
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "env").write_text("HF_TOKEN='hf_very secret'\nOTHER=x\n")
    files = rendered(tmp_path, [], {}, secrets=["HF_TOKEN", "ABSENT"], secrets_file="~/env")
    words, variables = started(tmp_path, files, HOME=str(folder))

    assert (b"hf_very secret", False, False) == (
        variables["HF_TOKEN"],
        "OTHER" in variables,
        "ABSENT" in variables,
    )
    assert [] == [text for text in [*files.values(), str(words)] if "hf_very" in text]


@pytest.mark.parametrize(
    "name", ["A-B", "1A", "", "A B", "A\nB", "A=B", "A;touch canary", "ÄÖ", "UID", "PPID"]
)
def test_names_that_no_shell_exports_are_refused(tmp_path: Path, name: str) -> None:
    """
    A variable is named by letters, digits and `_`, and is not one that bash keeps for itself.
    """
    with pytest.raises(ConfigError):
        rendered(tmp_path, [], {name: "x"})
    with pytest.raises(ConfigError):
        rendered(tmp_path, [], {}, secrets=[name])


@pytest.mark.parametrize("value", ["a\0b", "x" * LONGEST_WORD, "\ud800"], ids=["nul", "long", "surrogate"])
def test_values_that_no_program_can_be_given_are_refused(tmp_path: Path, value: str) -> None:
    """
    NUL, more than the kernel takes, and what is not text are told before anything is sent.
    """
    with pytest.raises(ConfigError):
        rendered(tmp_path, [], {"A": value})
    with pytest.raises(ConfigError):
        rendered(tmp_path, [[value + "x"]], {})


@pytest.mark.parametrize("log", ["../log", "a b", "", "a\nb", "-x", '"'])
def test_log_is_a_plain_name(tmp_path: Path, log: str) -> None:
    """
    The log lies in the run's directory under a name that needs no quoting anywhere.
    """
    with pytest.raises(ConfigError):
        rendered(tmp_path, [], {}, log=log)


def test_two_attempts_differ_by_the_concession_alone(tmp_path: Path) -> None:
    """
    A line a flag: two scripts whose servers differ in one flag differ in one line of the command.
    """
    lines = [
        rendered(tmp_path, [["--port", "30000"], ["--max-running-requests", n], ["--trust-remote-code"]], {})[
            "launch.sh"
        ].splitlines()
        for n in ("512", "48")
    ]

    assert [["    --max-running-requests 512 \\"], ["    --max-running-requests 48 \\"]] == [
        [line for line in lines[0] if line not in lines[1]],
        [line for line in lines[1] if line not in lines[0]],
    ]


def test_script_says_what_it_concedes(tmp_path: Path) -> None:
    """
    A stranger on the box reads in the first lines which attempt it is and what was given up.
    """
    asked = attempt_of("r", SERVER.with_flags(max_running_requests=48))
    head = rendered(tmp_path, [], {}, attempt=asked)["launch.sh"].splitlines()[:5]

    assert [
        "#!/bin/sh",
        "# mtpdeploy: run r",
        "# This is attempt 2 of bringing up qwen with SGLang 0.5.9.",
        "# Conceded to what was asked: max_running_requests = 48",
        "#",
    ] == head


def test_template_of_the_user_comes_first(tmp_path: Path) -> None:
    """
    A template in the user's own folder replaces ours of that name, and only that one.
    """
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "sglang.sh.j2").write_text('    numactl {{ command.argv[0] }} "$EXTRA" {{ run }}\n')
    script = rendered(tmp_path, [], {}, template_dir=folder, run="a b")["launch.sh"]

    assert f"    numactl {sys.executable} -I -S -X utf8 -c '\nimport json" in script
    assert "' \"$EXTRA\" 'a b'\n" in script


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{{ attempt.nothing }}", "has no attribute 'nothing'"),
        ("\n{% if %}", r"in .*sglang\.sh\.j2, line 2"),
    ],
)
def test_faulty_template_of_the_user_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    """
    A name that does not exist or a syntax error is told with template and line, not left empty.
    """
    (tmp_path / "sglang.sh.j2").write_text(text)
    with pytest.raises(ConfigError, match=message):
        rendered(tmp_path, [], {}, template_dir=tmp_path)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a b", "'a b'"), (["a", "b c", ""], "a 'b c' ''"), (7, "7"), (Raw("$HOME"), "$HOME"), ("", "''")],
)
def test_quoting_is_the_default(value: object, expected: str) -> None:
    """
    Everything is quoted as one word, lists as several; only Raw is not.
    """
    assert expected == quoted(value)


def test_comment_is_one_short_line() -> None:
    """
    A value of any length and content is at most one line of a comment.
    """
    assert "a b  c" + "x" * 294 + "…" == comment("a\nb\r\u2028c" + "x" * 1000)
