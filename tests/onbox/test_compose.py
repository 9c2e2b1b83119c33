import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mtpdeploy import onbox
from mtpdeploy.onbox import compose, script

HOME = Path(onbox.__file__).parent
PROGRAMS = [path.stem for path in sorted(HOME.glob("*.py")) if "\ndef main(request: " in path.read_text()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_of_python_3_8_and_need_nothing_of_ours(name: str) -> None:
    """
    What is sent is one text of Python 3.8's syntax that imports the standard library alone.
    """
    tree = ast.parse(compose(name, {"a": 1}), feature_version=(3, 8))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }

    assert set() == {name.partition(".")[0] for name in imported} - sys.stdlib_module_names


def test_request_arrives_as_it_was() -> None:
    """
    Any text in a request reaches the program unchanged: quotes, backslashes, newlines, other scripts.
    """
    path = "/nowhere/'\"\\\n$(touch canary)`→😀\u2028EOF"
    request = {"path": path, "offset": 0, "limit": 1}
    done = subprocess.run(
        ["sh", "-s"],
        input=script("files", request, sys.executable),
        capture_output=True,
        text=True,
        check=True,
    )

    assert path == json.loads(done.stdout)["path"]


def test_same_name_in_two_modules_is_refused() -> None:
    """
    Two modules that define the same name are an error here, not a surprise on the box.
    """
    owners = {"store": "elsewhere"}
    with pytest.raises(
        ValueError, match=r"`store` is defined in both onbox/elsewhere\.py and onbox/files\.py"
    ):
        onbox._collect("launch", {}, owners, program=True)
