"""
The commands that need no box: help, lists, scripts, and where every value came from.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mtpdeploy.cli.main import COMMANDS
from mtpdeploy.core.machine import Host
from mtpdeploy.errors import BoxUnreachable
from tests.cli.conftest import Run
from tests.cli.test_refusals import HOSTS

GROUPS = {("hosts", "add"), ("hosts", "forget"), ("config", "explain")}


@pytest.mark.parametrize(
    "words", [(), *((name,) for name in COMMANDS), *sorted(GROUPS)], ids=lambda words: " ".join(words) or "-"
)
def test_help(words: tuple[str, ...], run: Run) -> None:
    """
    Every command explains itself, with the options that it has, in lines of 100 columns.
    """
    said = run(*words, "--help")

    assert (0, "") == (said.status, said.err)
    assert said.out.startswith(f"Usage: mtpdeploy{''.join(f' {word}' for word in words)} ")
    assert max(map(len, said.out.splitlines())) <= 100


def test_help_names_every_command_and_exit_status(run: Run) -> None:
    """
    The first page tells what there is, and what each exit status means.
    """
    out = run("--help").out

    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert all(f"\n    {status} " in out for status in (0, 1, 2, 3, 4, 5, 6, 8, 70, 130))


@pytest.mark.parametrize("words", [(), ("config",)], ids=["mtpdeploy", "a group"])
def test_no_command(words: tuple[str, ...], run: Run) -> None:
    """
    Without a command its help is shown, and nothing was done: 2, without an error.
    """
    said = run(*words)

    assert (2, "") == (said.status, said.err)
    assert run(*words, "--help").out.strip() == said.out.strip()


def test_version(run: Run) -> None:
    """
    `--version` prints name and version.
    """
    assert run("--version").out.startswith("mtpdeploy, version ")


def test_help_imports_nothing_heavy() -> None:
    """
    The first page is shown without the libraries of the work itself.
    """
    code = (
        "import sys; from mtpdeploy.cli.main import run; run(['--help']); "
        "print([m for m in ('paramiko', 'fabric', 'asyncssh', 'jinja2', 'rich', 'tenacity', 'tomlkit')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]\n" == done.stderr


class TestLists:
    """
    Lists for people and for programs.
    """

    def test_rungs(self, run: Run) -> None:
        """
        Every rung with what it gives up and the causes that it answers, the same in both forms.
        """
        table = run("rungs")
        document = json.loads(run("rungs", "--json").out)

        assert 0 == table.status
        assert "fewer-requests" in table.out
        assert {"name", "answers", "gives_up"} == set(document[0])
        assert ["oom-kv-pool", "oom-pools"] == next(
            rung["answers"] for rung in document if rung["name"] == "fewer-requests"
        )

    def test_hosts(self, folder: Path, run: Run) -> None:
        """
        The hosts of hosts.toml.
        """
        (folder / "hosts.toml").write_text(HOSTS)

        assert ["203.0.113.20", "203.0.113.21"] == [
            host["address"] for host in json.loads(run("hosts", "--json").out)
        ]
        assert "h200-a" in run("hosts").out

    def test_hosts_add(self, folder: Path, run: Run) -> None:
        """
        A pasted line is written below what stands there, comments and all.
        """
        (folder / "hosts.toml").write_text("# mine\n" + HOSTS)

        said = run("hosts", "add", "rented", "ssh -p 19248 root@203.0.113.22 -L 8080:localhost:8080")
        text = (folder / "hosts.toml").read_text()
        hosts = json.loads(run("hosts", "--json").out)

        assert (0, "") == (said.status, said.out)
        assert "rented is in hosts.toml: mtpdeploy up --on rented\n" == said.err
        assert text.startswith("# mine\n" + HOSTS.splitlines()[0])
        assert ("203.0.113.22", 19248, "root") == tuple(hosts[-1][key] for key in ("address", "port", "user"))

    def test_no_history(self, run: Run) -> None:
        """
        An empty journal is no error.
        """
        said = run("history")

        assert (0, "", "no ascent in the journal\n") == (said.status, said.out, said.err)
        assert [] == json.loads(run("history", "--json").out)


class TestRender:
    """
    The wrapper script, without a box.
    """

    def test_the_version_decides_the_spelling(self, folder: Path, run: Run) -> None:
        """
        Each SGLang version gets the flag as it knows it.
        """
        (folder / "hosts.toml").write_text(HOSTS)
        words = ("render", "qwen", "--set", "mamba_radix_cache_strategy=extra_buffer")

        assert "--mamba-scheduler-strategy extra_buffer" in run(*words, "--sglang", "0.5.9").out
        assert "--mamba-radix-cache-strategy extra_buffer" in run(*words, "--sglang", "0.5.23").out

    def test_it_is_the_users_own_server(self, folder: Path, run: Run) -> None:
        """
        Without `--on` the hosts.toml there is read, with its models and ports: the demo box is not meant.
        """
        example = Path(__file__).parents[2] / "hosts.toml"
        (folder / "hosts.toml").write_bytes(example.read_bytes())

        scripts = [run("render"), run("render", "qwen3.6-27b")]

        assert [0, 0] == [said.status for said in scripts]
        assert all("--model-path /workspace/models/Qwen3.6-27B" in said.out for said in scripts)
        assert all("--port 30000" in said.out for said in scripts)
        assert not (folder / "state").exists()

    @pytest.mark.parametrize("hosts", [0, 1, 2])
    def test_no_host_is_needed(self, hosts: int, folder: Path, run: Run) -> None:
        """
        The only host's variables are in the script; of several none is meant, and the defaults hold.
        """
        tables = "".join(f'[hosts.h{n}]\naddress = "h"\nenv = {{ OWN = "h{n}" }}\n' for n in range(hosts))
        defaults = '[defaults.host.env]\nALL = "of us"\n'
        (folder / "hosts.toml").write_text('[servers.s]\nmodel_path = "m"\n' + tables + defaults)

        said = run("render")

        assert 0 == said.status, said.err
        assert "export ALL='of us'" in said.out
        assert (hosts == 1) == ("OWN" in said.out)

    def test_nothing_is_configured(self, run: Run) -> None:
        """
        Without a server there is none to render; `--on demo` shows that of the demo box.
        """
        assert 2 == run("render").status
        assert "there is no server in `hosts.toml`" in run("render").err
        assert "Qwen3.6-27B" in run("render", "--on", "demo").out

    def test_values_are_quoted(self, folder: Path, run: Run) -> None:
        """
        What a shell would obey is one word of the script.
        """
        (folder / "hosts.toml").write_text(HOSTS)

        said = run("render", "qwen", "--set", "served_model_name=$(touch pwned); 'x'")
        checked = subprocess.run(["sh", "-n"], input=said.out, text=True, check=False, capture_output=True)

        assert 0 == said.status
        assert (0, "") == (checked.returncode, checked.stderr)
        assert "--served-model-name '$(touch pwned); '\"'\"'x'\"'\"''" in said.out


class TestDemo:
    @pytest.mark.parametrize("on", ["root@demo", "ssh -p 2222 root@demo", "ssh demo"])
    def test_a_real_machine_of_that_name_is_connected_to(
        self, on: str, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        What is more than the bare word goes out over the network, and lays out no demo box.
        """
        asked: list[str] = []

        def connect(host: Host, *_: object, **__: object) -> None:
            asked.append(host.address)
            raise BoxUnreachable(f"{host.address} was asked for")

        monkeypatch.setattr("mtpdeploy.remote.ssh.SshBox", connect)

        assert 3 == run("status", "--on", on).status
        assert ["demo"] == asked


class TestExplain:
    @pytest.mark.parametrize("words", [("--gpu", "0,1"), ("--gpu", "0", "--gpu", "1"), ("--gpu", "0, 1")])
    def test_several_gpus(self, words: tuple[str, ...], folder: Path, run: Run) -> None:
        """
        With commas or by several options.
        """
        (folder / "hosts.toml").write_text(HOSTS)
        rows = json.loads(run("config", "explain", "qwen", *words, "--json").out)["values"]

        assert [[0, 1]] == [row["value"] for row in rows if row["key"] == "servers.qwen.gpus"]

    def test_every_value_with_its_origin(
        self, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Command line, environment and file, each named, with what they override.
        """
        (folder / "hosts.toml").write_text(HOSTS)
        monkeypatch.setenv("MTPDEPLOY_PORT", "31000")

        said = run(
            "config", "explain", "qwen", "--on", "h200-a", "--port", "32000", "--set", "tp_size=2", "--json"
        )
        rows = {row["key"]: row for row in json.loads(said.out)["values"]}

        assert (32000, "--port") == tuple(rows["servers.qwen.port"][key] for key in ("value", "from"))
        assert [31000] == [claim["value"] for claim in rows["servers.qwen.port"]["overrides"]]
        assert 2 == rows["servers.qwen.tp_size"]["value"]
        assert "hosts.toml" in rows["servers.qwen.model_path"]["from"]
