import pytest

from mtpdeploy.inventory.secrecy import is_secret
from tests.inventory.conftest import Load


@pytest.mark.parametrize(
    "value",
    [
        "http://proxy:3128",
        "https://me@host/x",
        "http://h:80/a@b",
        "a:b@c",
        "redis://h:6379/0",
        "tcp://[::1]:80",
    ],
)
def test_a_url_without_a_password_is_none(value: str) -> None:
    """
    Ports, users and signs elsewhere in a URL open nothing.
    """
    assert not is_secret("X", value)


@pytest.mark.parametrize(
    "line",
    [
        "ssh -p 22 root@h -L 8080:localhost:8080",
        "ssh ssh://root@h:22 -J a:22,ssh://me@b:2200",
        "me@[::1]:22",
        "ssh -J a:22,me@b root@h",
        "root@2001:db8::5",
    ],
)
def test_a_line_without_a_password_is_taken(line: str, load_text: Load) -> None:
    """
    Ports before a user, and users before a port, are no passwords.
    """
    inventory = load_text(f"[hosts.h]\nssh = '{line}'\n")

    assert ("ssh", line) == inventory.hosts["h"]["reach"][0].value
