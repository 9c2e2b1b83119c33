"""
What is left out of a report: examples of each rule, and laws over made-up journals.
"""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpdeploy.core.diagnosis import Stage
from mtpdeploy.core.machine import Host
from mtpdeploy.deploy.redaction import Known, Redactor, known_of
from tests.deploy.examples import OUTCOME, RECORD

HOST = Host(
    name="gpu-7.corp",
    address="203.0.113.20",
    port=19248,
    user="ada",
    identity_file="~/.ssh/id_work",
    proxy_jump="eve@bastion.example.com:22,ops@[2001:db8::99]:2222",
    alias="mine",
    forwards=("8080:inner.corp.example:8080",),
    ssh_options=("HostKeyAlias=keys.corp", "User=carol", "ProxyCommand=ssh -W %h:%p relay.example.org"),
)

IN_THE_CLEAR = (
    "ada",
    "eve",
    "carol",
    "laptop-of-ada",
    "gpu-7.corp",
    "mine",
    "203.0.113.20",
    "2001:db8::99",
    "bastion.example.com",
    "inner.corp.example",
    "keys.corp",
    "relay.example.org",
    "~/.ssh/id_work",
)
"""What HOST and its client tell."""

SECRETS = (
    "hf_AbCdEfGhIjKlMnOpQrStUv",
    "sk-AbCdEfGhIjKlMnOpQrStUv",
    "ghp_AbCdEfGhIjKlMnOpQrStUv",
    "AKIAABCDEFGHIJKLMNOP",
    "AbCdEfGhIjKl/MnOpQr0StUvWx" + "Yz1234567890+A",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
)


def redactor() -> Redactor:
    """
    One that knows HOST.
    """
    return Redactor(known_of([HOST], ["ada@laptop-of-ada"]))


class TestSecrets:
    """
    Without `--redact` too.
    """

    @pytest.mark.parametrize("secret", SECRETS)
    @pytest.mark.parametrize(
        "line", ["{}", "export X={}", "url=https://a/?k={}&b=1", '{{"a": "{}"}}', "({})"]
    )
    def test_what_looks_like_a_key(self, line: str, secret: str) -> None:
        """
        Keys are known by how they begin, wherever they stand.
        """
        assert secret not in Redactor().text(line.format(secret))

    @pytest.mark.parametrize(
        "line",
        [
            "HF_TOKEN=PLAINWORD",
            "export WANDB_API_KEY='PLAINWORD'",
            "api_key='PLAINWORD', port=1",
            'ServerArgs(admin_api_key="PLAINWORD")',
            '{"HF_TOKEN": "PLAINWORD"}',
            r"{\"HF_TOKEN\": \"PLAINWORD\"}",
            r'{"password": "a\\PLAINWORD"}',
            "password: 'PLAINWORD",
            "git_password = x'PLAINWORD'",
            "--api-key PLAINWORD --port 1",
            "--admin-api-key=PLAINWORD",
            "Authorization: Bearer PLAINWORD",
            "http://me:PLAINWORD@proxy:3128/",
            "ssh root:PLAINWORD@203.0.113.20",
        ],
    )
    def test_what_stands_behind_the_name_of_one(self, line: str) -> None:
        """
        Values of secrets are known by what they are called, in the writings of logs, scripts and JSON.
        """
        found = Redactor().text(line)

        assert "PLAINWORD" not in found
        assert "…" in found

    @pytest.mark.parametrize(
        "line",
        [
            "Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, full token usage: 0.00",
            "eos_token='<|im_end|>', api_key=None, max_total_num_tokens=131090",
            "0:02 a@b 16:05:01 tokenizer: fast",
            "KV Cache is allocated. #tokens: 131090, K size: 4.00 GB, V size: 4.00 GB",
        ],
    )
    def test_what_is_none_stays(self, line: str) -> None:
        """
        SGLang counts tokens and names special ones; that is no secret.
        """
        assert line == Redactor().text(line)

    def test_a_value_is_known_by_its_name(self) -> None:
        """
        In records, too, at any depth; numbers and enumerations stay.
        """
        found = Redactor().value({"env": {"HF_TOKEN": "PLAINWORD", "A": 1}, "stage": Stage.SIZED, "n": [2.5]})

        assert {"env": {"HF_TOKEN": "…", "A": 1}, "stage": Stage.SIZED, "n": [2.5]} == found

    def test_without_redaction_names_stay(self) -> None:
        """
        Addresses and names are of use to oneself.
        """
        line = "ada@203.0.113.20 /home/ada 2001:db8::99"

        assert line == Redactor().text(line)


class TestNames:
    """
    With `--redact`.
    """

    @pytest.mark.parametrize("name", IN_THE_CLEAR)
    @pytest.mark.parametrize("line", ["{}", "to {}: lost", "[{}]", "x={},", "'{}'", "/{}/", "{}\n{}"])
    def test_what_the_host_tells(self, line: str, name: str) -> None:
        """
        Every part of how a box is reached has a placeholder.
        """
        assert name not in redactor().text(line.replace("{}", name))

    def test_the_same_thing_has_the_same_placeholder(self) -> None:
        """
        Lines stay comparable, whatever the writing: upper case, IPv6 in full.
        """
        one = redactor()
        texts = [
            one.text(t) for t in ("at MINE", "at mine", "2001:db8::99", "2001:0DB8:0:0::99", "x 10.0.0.5")
        ]

        assert texts[0] == texts[1]
        assert texts[2] == texts[3]
        assert texts[4] == one.text("x 10.0.0.5") != one.text("x 10.0.0.6")

    @pytest.mark.parametrize(
        ("line", "clean"),
        [
            ("connect to gpu-box-7.provider.example.net:22", "connect to host-1:22"),
            ("get https://files.example.com:8080/x", "get https://host-1:8080/x"),
            ("init_method=tcp://node17:1234", "init_method=tcp://host-1:1234"),
            ("node1.cluster.local:5000 node1.cluster.local", "host-1:5000 host-1"),
            ("/root/secret/x, /root/secret/x", "/root/path-1, /root/path-1"),
            ("open('/home/ubuntu/acme/x.py')", "open('/home/ubuntu/path-1')"),
            ("/home/bob/acme/x", "/home/user-1/path-1"),
        ],
    )
    def test_what_nobody_named_before(self, line: str, clean: str) -> None:
        """
        Hosts by their look, and what lies in home directories, the same thing by the same word.
        """
        assert clean == Redactor([]).text(line)
        assert clean == Redactor([]).text(clean)

    @pytest.mark.parametrize(
        "line",
        [
            "https://huggingface.co/Qwen/Qwen3.6-27B https://raw.githubusercontent.com/a/b",
            "sglang.srt.managers.scheduler torch.nn.Linear threading.local x.info()",
            "model.safetensors.index.json config.json launch.sh libcuda.so.1 flags.in",
            "/root/.cache/huggingface/hub/models--Qwen /root/venv/lib/python3.12/site-packages/x.py",
            "http://127.0.0.1:30000/v1 http://localhost:8000 http://0.0.0.0:30000",
        ],
    )
    def test_what_everybody_has_stays(self, line: str) -> None:
        """
        Public hubs, modules, files, and caches that every home directory has.
        """
        assert line == Redactor([]).text(line)

    @pytest.mark.parametrize(
        "line",
        [
            "127.0.0.1:30000 localhost 0.0.0.0:8000 ::1 [::]:22 ::ffff:127.0.0.1",
            "sglang 0.5.12.1, torch 2.9.1, 16:05:01.123, 1.25.3",
            "c10::cuda::CUDACachingAllocator std::vector<at::Tensor> torch::jit 0x7f::",
            "root@localhost /root/.mtpdeploy /home/ubuntu/models/x",
            "minesweeper adapter evening determine",
            "2026-12-01T10:11:12.123456 [2026-12-01 16:05:01] 12:34:56",
        ],
    )
    def test_what_tells_nothing_stays(self, line: str) -> None:
        """
        This machine's own addresses, versions that begin with 0, times, C++, users that every image has.
        """
        assert line == redactor().text(line)

    @pytest.mark.parametrize(
        ("line", "left"),
        [
            ("ip-10-0-0-5.ec2.internal is up", "host-"),
            ("mail bob@corp.example.net", "user-"),
            ("/home/zoe/.cache and /Users/zoe", "/home/user-"),
            ("fe80::1%eth0: link", "address-"),
            ("addr:2001:db8:1::7,", "addr:address-"),
            ("GPU-12345678-1234-1234-1234-123456789abc", "card-1"),
            ("::ffff:10.1.2.3", "address-"),
        ],
    )
    def test_what_nobody_told(self, line: str, left: str) -> None:
        """
        Addresses, logins and homes are found by their look as well.
        """
        found = redactor().text(line)

        assert left in found
        assert not {"10-0-0-5", "corp.example", "bob", "zoe", "fe80", "db8", "10.1.2.3"} & set(found.split())

    def test_a_name_like_a_placeholder(self) -> None:
        """
        A machine that is called so gets another one.
        """
        one = Redactor([Known("host", "host-1"), Known("host", "address")])

        assert "host-1" not in one.text("on host-1.")
        assert one.text("address host-1") == one.text(one.text("address host-1"))

    def test_a_record_keeps_its_form(self) -> None:
        """
        Structs come back as such, with stages and causes as they were.
        """
        found = redactor().value(OUTCOME)

        assert (OUTCOME.stage, OUTCOME.end, OUTCOME.figures) == (found.stage, found.end, found.figures)
        assert "ada" not in redactor().value(RECORD).client


MARKS = ("'", '"', "@", "/", ".", "-", "_", " ", "x", "7", "…", "\\", "=", ":", "::")
LOOKALIKES = (
    "10.20.30.40",
    "fd00::beef",
    "host-1",
    "address-2",
    "host",
    "token",
    "0.5.9",
    "127.0.0.1",
    "/home/",
)
WORDS = st.sampled_from([*IN_THE_CLEAR, *SECRETS, *LOOKALIKES, *MARKS, "/home/", "--api-key "])
TEXTS = st.lists(WORDS | st.text(max_size=3), max_size=12).map("".join)


class TestLaws:
    @given(TEXTS)
    def test_what_was_redacted_stays_as_it_is(self, text: str) -> None:
        """
        A second time changes nothing.
        """
        one = redactor()
        once = one.text(text)

        assert once == one.text(once)

    @given(st.lists(WORDS | st.text(alphabet=" \t,;=<>()[]{}|!?…'\"", max_size=3), max_size=12))
    def test_nothing_known_is_left(self, words: list[str]) -> None:
        """
        However words are put beside each other, no address and no distinctive name of the host is left.
        """
        found = redactor().text("".join(words)).lower()
        distinctive = [n for n in IN_THE_CLEAR if len(n) >= 6 or ":" in n]

        assert [] == [name for name in distinctive if name.lower() in found]
        assert [] == [name for name in ("ada", "eve", "carol", "mine") if f" {name} " in f" {found} "]

    @given(
        st.ip_addresses(v=4),
        st.sampled_from([" ", ":", "/", "[", "(", "@", "=", "a", ",", "-", "_", "http://"]),
    )
    def test_any_address_of_four_numbers(self, address: ipaddress.IPv4Address, before: str) -> None:
        """
        All but this machine's own and those of no network.
        """
        found = redactor().text(f"{before}{address}:80")

        assert (str(address) in found) == (address.is_loopback or int(address) >> 24 == 0)

    @given(
        st.ip_addresses(v=6), st.sampled_from([" ", ":", "/", "[", "(", "@", "=", ",", "-", "_", "http://"])
    )
    def test_any_address_of_eight_groups(self, address: ipaddress.IPv6Address, before: str) -> None:
        """
        In short and in full.
        """
        inner = address.ipv4_mapped or address
        if inner.is_loopback or inner.is_unspecified:
            return
        one = redactor()

        assert address.compressed not in one.text(f"{before}{address.compressed} up")
        assert address.exploded not in one.text(f"{before}{address.exploded}, up")
