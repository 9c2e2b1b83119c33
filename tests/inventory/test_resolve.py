import pytest

from mtpdeploy.core.machine import Host
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.errors import ConfigError
from mtpdeploy.inventory import explain
from mtpdeploy.remote.address import parse_address
from tests.inventory.conftest import HOST, SERVER, Load, Resolve

PASTED = "paste the line your provider shows: --on 'ssh -p 19248 root@203.0.113.20', or keep it:\n"


def test_one_server_and_one_host_need_no_names(resolve_text: Resolve) -> None:
    """
    With one of each both names may be left out, and nothing but what is written stands in them.
    """
    server, host, ladder, _ = resolve_text(SERVER + HOST)

    assert ServerSpec(name="s", flags={"model_path": "/m"}) == server
    assert Host(name="h", address="203.0.113.20") == host
    assert "default" == ladder.name


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("h", Host(name="h", address="203.0.113.20", user="me")),
        (
            "ssh -p 19248 root@198.51.100.7 -L 8080:localhost:8080",
            Host(
                name="198.51.100.7:19248",
                address="198.51.100.7",
                port=19248,
                user="root",
                forwards=("8080:localhost:8080",),
            ),
        ),
        (
            "root@198.51.100.7:19248",
            Host(name="198.51.100.7:19248", address="198.51.100.7", port=19248, user="root"),
        ),
        (
            "ssh://198.51.100.7:19248",
            Host(name="198.51.100.7:19248", address="198.51.100.7", port=19248, user="me"),
        ),
        ("gpu-box", Host(name="gpu-box", address="gpu-box", alias="gpu-box", user="me")),
        ("demo", Host(name="demo", address="demo", simulated=True)),
        ("demo:hang=graphs", Host(name="demo", address="demo:hang=graphs", simulated=True)),
    ],
)
def test_a_host_can_be_said_in_every_way(on: str, expected: Host, resolve_text: Resolve) -> None:
    """
    A name, a pasted line, an address, a URL, an alias and the demo box; defaults fill what a line leaves
    open, except for the demo box.
    """
    text = '[defaults.host]\nuser = "me"\n' + SERVER + HOST

    assert expected == resolve_text(text, on=on).host
    assert expected == resolve_text(text, environ={"MTPDEPLOY_ON": on}).host


def test_every_key_of_a_host_arrives(resolve_text: Resolve) -> None:
    """
    A host in single keys becomes the Host with each of them.
    """
    text = """
[hosts.h]
address = "2001:db8::1"
port = 19248
user = "root"
identity_file = "~/.ssh/key"
proxy_jump = "me@bastion:22,other"
work_dir = "/workspace/.mtpdeploy"
python = "/venv/bin/python"
quirks = ["no-sftp", "host-pids"]
price_per_hour = 2
env = { A = "1" }
"""

    assert Host(
        name="h",
        address="2001:db8::1",
        port=19248,
        user="root",
        identity_file="~/.ssh/key",
        proxy_jump="me@bastion:22,other",
        work_dir="/workspace/.mtpdeploy",
        python="/venv/bin/python",
        quirks=("no-sftp", "host-pids"),
        price_per_hour=2,
        env={"A": "1"},
    ) == (resolve_text(SERVER + text).host)


def test_an_alias_leaves_the_rest_to_openssh(resolve_text: Resolve) -> None:
    """
    `alias` gives the name under which OpenSSH's configuration is asked.
    """
    host = resolve_text(SERVER + '[hosts.h]\nalias = "gpu-box"\nuser = "root"\n').host

    assert Host(name="h", address="gpu-box", alias="gpu-box", user="root") == host


def test_the_projects_address_replaces_the_users_line(resolve_text: Resolve) -> None:
    """
    The same host in both files: the way to reach it is one thing, and the project's wins; other keys are
    merged.
    """
    resolved = resolve_text(
        SERVER + '[hosts.h]\naddress = "203.0.113.20"\n',
        user_text='[hosts.h]\nssh = "ssh -p 22 root@198.51.100.7"\npython = "/p"\n',
    )
    row = next(row for row in resolved.explained.rows if row.key == "hosts.h.address")

    assert Host(name="h", address="203.0.113.20", python="/p") == resolved.host
    assert "203.0.113.20" == row.value


def test_the_projects_line_goes_before_the_users_keys(resolve_text: Resolve) -> None:
    """
    What a line says beats the same key of a lesser file, and fills in beside a key of a greater one.
    """
    line = '[hosts.h]\nssh = "ssh -p 22 root@198.51.100.7"\n'
    keys = '[hosts.h]\nport = 19248\nidentity_file = "~/.ssh/key"\n'

    assert Host(
        name="h",
        address="198.51.100.7",
        port=22,
        user="root",
        identity_file="~/.ssh/key",
    ) == (resolve_text(SERVER + line, user_text=keys).host)
    assert Host(
        name="h",
        address="198.51.100.7",
        port=19248,
        user="root",
        identity_file="~/.ssh/key",
    ) == (resolve_text(SERVER + keys, user_text=line).host)


def test_a_bare_name_is_an_alias_unless_it_is_nearly_a_host(resolve_text: Resolve) -> None:
    """
    A misspelled host is not taken for a machine to be looked up, but a known alias is.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(SERVER + HOST.replace("[hosts.h]", "[hosts.rented]"), on="rentd")
    known = resolve_text(
        SERVER + HOST.replace("[hosts.h]", "[hosts.rented]"),
        on="rentd",
        is_alias=lambda name: name == "rentd",
    )

    assert "`--on`: there is no host `rentd` in `hosts.toml`" == caught.value.message
    assert (
        "the nearest right name is `rented`; for a name of ~/.ssh/config write `--on 'ssh rentd'`"
        == caught.value.hint
    )
    assert "rentd" == known.host.alias


@pytest.mark.parametrize("on", ["root@demo", "ssh demo", "ssh -p 2222 root@demo", "ssh://demo:22", "h", "a"])
def test_a_machine_may_be_called_demo(on: str, resolve_text: Resolve) -> None:
    """
    Only the bare word is the demo box; whatever else says where a machine is means a real one.
    """
    text = SERVER + '[hosts.h]\naddress = "demo"\n[hosts.a]\nalias = "demo"\n'
    host = resolve_text(text, on=on).host

    assert ("demo", False) == (host.address, host.simulated)
    assert host == resolve_text(text, environ={"MTPDEPLOY_ON": on}).host


@pytest.mark.parametrize(
    ("text", "server", "on", "message", "hint"),
    [
        (
            SERVER + '[servers.t]\nmodel_path = "/t"\n' + HOST,
            None,
            None,
            "no server is named, and `hosts.toml` has several: `s`, `t`",
            "name one: `mtpdeploy up s`",
        ),
        (
            SERVER + HOST + '[hosts.g]\naddress = "x"\n',
            None,
            None,
            "no host is named, and `hosts.toml` has several: `h`, `g`",
            "name one: `--on h`",
        ),
        (
            HOST,
            None,
            None,
            "there is no server in `hosts.toml`",
            (
                "write a table `[servers.NAME]` with its `model_path`; the hosts.toml that comes with"
                " mtpdeploy shows every key"
            ),
        ),
        (
            SERVER,
            None,
            None,
            "no host is named, and there is none in `hosts.toml`",
            PASTED
            + "mtpdeploy hosts add rented 'ssh -p 19248 root@203.0.113.20'; without a machine: --on demo",
        ),
        (
            SERVER + HOST,
            "ss",
            None,
            "there is no server `ss` in `hosts.toml`",
            "the nearest right name is `s`",
        ),
        (HOST, "s", None, "there is no server `s` in `hosts.toml`", "write a `[servers.NAME]` table"),
        (
            "[servers.s]\nport = 1\n" + HOST,
            None,
            None,
            "`hosts.toml`, line 1: `[servers.s]` has no `model_path`",
            'write `model_path = "…"`: a folder on the box, or a name of the Hugging Face hub',
        ),
        (
            SERVER + "[hosts.h]\nport = 22\n",
            None,
            None,
            "`hosts.toml`, line 3: `[hosts.h]` does not say where the host is",
            'write `ssh = "…"` with the line your provider shows, or `address`, or `alias`',
        ),
        (
            SERVER + '[hosts.h]\nssh = "ssh -p 22 root@x ls"\n',
            None,
            None,
            (
                "`hosts.toml`, line 4: `ssh` in `[hosts.h]`: the ssh line runs a command,"
                " which mtpdeploy cannot do: ls"
            ),
            "leave away what stands after the host",
        ),
        (
            SERVER + '[hosts.h]\nssh = "ssh -p 22 root@x"\nport = 22\n',
            None,
            None,
            "`hosts.toml`, line 5: `port` in `[hosts.h]` is also in its `ssh` line (line 4)",
            "keep one of the two",
        ),
        (
            SERVER + 'ladder = "defualt"\n' + HOST,
            None,
            None,
            "`hosts.toml`, line 3: there is no ladder `defualt`",
            "the nearest right name is `default`",
        ),
    ],
)
def test_what_cannot_be_settled_is_one_error(
    text: str, server: str | None, on: str | None, message: str, hint: str, resolve_text: Resolve
) -> None:
    """
    None or several to choose from, a server without a model, a host without a place, no such ladder.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(text, server=server, on=on)

    assert (message, hint) == (caught.value.message, caught.value.hint)


def test_without_any_file_the_error_says_where_it_was_looked_for(resolve_text: Resolve) -> None:
    """
    Neither file there: both places are named.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(None)

    assert caught.value.message.startswith("there is no server in `hosts.toml` or `")
    assert caught.value.message.endswith("/user/hosts.toml`")


def test_an_error_of_the_address_names_the_option(resolve_text: Resolve) -> None:
    """
    A pasted line that cannot be read is told as the option's, on one line.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(SERVER + HOST, on="root@\x07h:p")

    assert "`--on`: a port lies between 1 and 65535: p" == caught.value.message


def test_explains_all_where_nothing_is_named(load_text: Load) -> None:
    """
    `config explain` shows every server, every host and the settings; several of them are no error there.
    """
    inventory = load_text(
        SERVER + '[servers.t]\nmodel_path = "/t"\n' + HOST + '[hosts.g]\nalias = "x"\n',
        environ={"MTPDEPLOY_STATE_DIR": "/state"},
    )
    keys = [row.key for row in explain(inventory, read_address=parse_address).rows]

    assert [
        "servers.s.model_path",
        "servers.s.ladder",
        "servers.s.allow_without_mtp",
        "ladders.default.rungs",
        "servers.t.model_path",
        "servers.t.ladder",
        "servers.t.allow_without_mtp",
        "hosts.h.address",
        "hosts.h.work_dir",
        "hosts.g.address",
        "hosts.g.alias",
        "hosts.g.work_dir",
        "MTPDEPLOY_STATE_DIR",
    ] == keys


def test_explains_nothing_where_nothing_is_configured(load_text: Load) -> None:
    """
    An empty place is a table without rows.
    """
    assert () == explain(load_text(None), read_address=parse_address).rows


@pytest.mark.parametrize("blank", ["", " "])
def test_an_empty_name_of_a_host_is_refused(blank: str, resolve_text: Resolve) -> None:
    """
    A shell variable that is not set must not mean the one host there is.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(SERVER + HOST, on=blank)

    assert "`--on`: no host is named" == caught.value.message
    assert caught.value.hint


def test_a_blank_variable_is_refused_too(resolve_text: Resolve) -> None:
    """
    An empty variable is one that is not set; a blank one is a mistake.
    """
    assert "h" == resolve_text(SERVER + HOST, environ={"MTPDEPLOY_ON": ""}).host.name
    with pytest.raises(ConfigError) as caught:
        resolve_text(SERVER + HOST, environ={"MTPDEPLOY_ON": " "})

    assert "`MTPDEPLOY_ON`: no host is named" == caught.value.message


def test_an_empty_name_of_a_server_is_refused(resolve_text: Resolve) -> None:
    """
    The same for the server.
    """
    with pytest.raises(ConfigError) as caught:
        resolve_text(SERVER + HOST, server="")

    assert "there is no server `` in `hosts.toml`" == caught.value.message


def test_a_long_list_of_names_is_cut(resolve_text: Resolve) -> None:
    """
    Of hundreds of servers, hosts or ladders an error names a few, and how many more there are.
    """
    servers = "".join(f'[servers.s{n}]\nmodel_path = "/m"\n' for n in range(500))
    hosts = "".join(f'[hosts.h{n}]\naddress = "h"\n' for n in range(500))
    said = []
    for server, on in ((None, "h1"), ("zzz", "h1"), ("s1", None)):
        with pytest.raises(ConfigError) as caught:
            resolve_text(servers + hosts, server=server, on=on)
        said.append(f"{caught.value.message} {caught.value.hint}")

    assert all("`, `" in text and "and 484 more" in text and len(text) < 400 for text in said)


def test_the_nearest_of_many_names_is_named(resolve_text: Resolve) -> None:
    """
    What was most likely meant needs no list.
    """
    servers = "".join(f'[servers.model-{n}]\nmodel_path = "/m"\n' for n in range(500))
    with pytest.raises(ConfigError) as caught:
        resolve_text(servers + HOST, server="modell-499")

    assert "the nearest right name is `model-499`" == caught.value.hint
