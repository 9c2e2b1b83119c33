"""
What people paste to say where a box is.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import ConfigError
from mtpdeploy.remote.address import parse_address

ADDRESS = "203.0.113.20"
NAMED = f"{ADDRESS}:19248"

FORMS = {
    "ssh -p 19248 root@203.0.113.20 -L 8080:localhost:8080": Host(
        name=NAMED, address=ADDRESS, port=19248, user="root", forwards=("8080:localhost:8080",)
    ),
    "  $ ssh root@203.0.113.20 -p19248 -i ~/.ssh/id_ed25519 ": Host(
        name=NAMED, address=ADDRESS, port=19248, user="root", identity_file="~/.ssh/id_ed25519"
    ),
    "/usr/bin/ssh -NTvvi 'my key' -J jump@gate:2200 -l root -4 203.0.113.20": Host(
        name=ADDRESS,
        address=ADDRESS,
        user="root",
        identity_file="my key",
        proxy_jump="jump@gate:2200",
        ssh_options=("AddressFamily=inet",),
    ),
    "ssh -o HostKeyAlias=gpu -oStrictHostKeyChecking=no -o 'ConnectTimeout 5' gpu-a": Host(
        name="gpu-a",
        address="gpu-a",
        alias="gpu-a",
        ssh_options=("HostKeyAlias=gpu", "StrictHostKeyChecking=no", "ConnectTimeout 5"),
    ),
    "ssh -p 1 -p 2 -- root@gpu-a": Host(name="gpu-a:1", address="gpu-a", port=1, user="root", alias="gpu-a"),
    "ssh ssh://root@203.0.113.20:19248 -L [::1]:80:[::1]:90 -L 1:b:2": Host(
        name=NAMED, address=ADDRESS, port=19248, user="root", forwards=("[::1]:80:[::1]:90", "1:b:2")
    ),
    "root@203.0.113.20:19248": Host(name=NAMED, address=ADDRESS, port=19248, user="root"),
    "203.0.113.20": Host(name=ADDRESS, address=ADDRESS),
    "ssh://root@203.0.113.20:19248": Host(name=NAMED, address=ADDRESS, port=19248, user="root"),
    "ssh://root@[2001:db8::5]:22/": Host(
        name="[2001:db8::5]:22", address="2001:db8::5", port=22, user="root"
    ),
    "[2001:db8::5]:2222": Host(name="[2001:db8::5]:2222", address="2001:db8::5", port=2222),
    "root@[2001:db8::5]:2222": Host(name="[2001:db8::5]:2222", address="2001:db8::5", port=2222, user="root"),
    "root@2001:db8::5": Host(name="2001:db8::5", address="2001:db8::5", user="root"),
    "gpu-a": Host(name="gpu-a", address="gpu-a", alias="gpu-a"),
    "me@box.example.com:2222": Host(
        name="box.example.com:2222",
        address="box.example.com",
        port=2222,
        user="me",
        alias="box.example.com",
    ),
}

REFUSED = {
    "": "no host is given",
    "ssh": "names no host",
    "ssh -p 22": "names no host",
    "ssh -Z root@a": "`-Z`",
    "ssh root@a -p": "`-p` has no value",
    "ssh root@a -p 0": "65535: 0",
    "ssh root@a -p 22x": "65535: 22x",
    "ssh -D 1080 root@a": "`-D`",
    "ssh -R 80:a:80 root@a": "`-R`",
    "ssh -W a:22 root@a": "`-W`",
    "ssh root@a nvidia-smi": "nvidia-smi",
    "ssh root@a 'open": "open quote",
    "ssh -o Foo root@a": "Name=value",
    "ssh -L 8080 root@a": "port:host:port",
    "root@a:70000": "65535: 70000",
    "root@a:": "65535: ",
    "a b": "a b",
    "root@": "root@",
    "-oProxyCommand=touch x": "-oProxyCommand",
    "ssh -- -oProxyCommand=x": "-oProxyCommand",
    "-x@a": "user name: -x",
    "ssh://root@a:b": "ssh://root@a:b",
    "ssh://root@a:0": "65535: 0",
    "ssh://root@a/etc": "no path",
    "[::1": "[::1",
    "http://x": "no ssh address: http://x",
    "sftp://root@x": "no ssh address: sftp://root@x",
    "127.0.0.1:22:33": "neither host:port nor an IPv6 address: 127.0.0.1:22:33",
    "root@a:b:c": "neither host:port nor an IPv6 address: a:b:c",
    "[a:b]:22": "no IPv6 address: a:b",
    "ssh -o SetEnv=A=hunter2 root@a": "SetEnv",
    "ssh -o 'setenv A=hunter2' root@a": "SetEnv",
    "ssh://root:hunter2@a": "a password",
    "ssh://root:hun/ter2@a:99999": "a password",
    "root:hunter2@a": "a password",
    "http://u:hunter2@a": "a password",
    "ssh root:hunter2@a": "a password",
    "ssh 'root:my hunter2@a'": "a password",
    "ssh 'ssh://root:hunter2@a": "open quote",
    "ssh -J b,me:hunter2@c root@a": "a password",
    "ssh -J ssh://me:hunter2@c root@a": "a password",
    "ssh -o ProxyJump=me:hunter2@c root@a": "a password",
    "sshpass -p hunter2 ssh root@a": "a password",
}


class TestParseAddress:
    """
    Reading what was pasted.
    """

    @pytest.mark.parametrize("text", FORMS)
    def test_reads(self, text: str) -> None:
        """
        Each form gives the host that OpenSSH would go to.
        """
        assert FORMS[text] == parse_address(text)

    @pytest.mark.parametrize("text", REFUSED)
    def test_refuses_by_name(self, text: str) -> None:
        """
        What cannot be honoured is named, and something to do is said.
        """
        with pytest.raises(ConfigError) as caught:
            parse_address(text)

        assert (True, True) == (REFUSED[text] in caught.value.message, bool(caught.value.hint))
        assert "hunter2" not in caught.value.message

    def test_takes_the_name_it_is_given(self) -> None:
        """
        `hosts add NAME "ssh line"`.
        """
        assert "blackwell" == parse_address("root@203.0.113.20:19248", name="blackwell").name

    @given(st.text(max_size=40) | st.text(max_size=40).map("ssh ".__add__))
    def test_never_passes_on_an_option(self, text: str) -> None:
        """
        Whatever is pasted: a host whose address and user cannot be taken for options of ssh, or an error.
        """
        try:
            host = parse_address(text)
        except ConfigError:
            return
        words = [host.address, host.user or "x"]

        assert [] == [word for word in words if word.startswith("-") or not word or set(word) & set(" \n\0")]
