import subprocess
import sys
from pathlib import Path

import pytest

from mtpdeploy.inventory.secrecy import is_secret


def test_importing_the_inventory_brings_nothing_heavy() -> None:
    """
    `mtpdeploy --help` must not wait for what only `hosts add` or an error needs.
    """
    heavy = {
        "tomlkit",
        "platformdirs",
        "jinja2",
        "fabric",
        "paramiko",
        "rich",
        "click",
        "asyncio",
        "subprocess",
    }
    program = "import sys, mtpdeploy.inventory; print(*sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )

    assert set() == heavy & set(done.stdout.split())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("HF_TOKEN", "x", True),
        ("HUGGING_FACE_HUB_TOKEN", "x", True),
        ("OPENAI_API_KEY", "x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("git_password", "x", True),
        ("X", "sk-abcdefghijklmnopqrst", True),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("HF_TOKEN_PATH", "/root/.token", False),
        ("SGLANG_ENABLE_SPEC_V2", "1", False),
        ("AWS_ACCESS_KEY_ID", "x", False),
        ("KEY", "value", False),
    ],
)
def test_knows_a_secret_by_its_name_or_look(name: str, value: str, expected: bool) -> None:
    """
    Tokens, API keys and passwords are secrets; paths to them and words that merely look alike are none.
    """
    assert expected == is_secret(name, value)
