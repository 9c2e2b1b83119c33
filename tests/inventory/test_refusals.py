import tomllib
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.errors import ConfigError
from tests.inventory.conftest import Load

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "refusals.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["fact"])
def test_one_whole_error_for_a_wrong_text(case: dict[str, Any], load_text: Load) -> None:
    """
    Each wrong text is one error that names file, line, table and key, and says what to write instead.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(case["text"])

    assert case["message"] == caught.value.message
    assert case["hint"] == caught.value.hint


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["fact"])
def test_no_error_repeats_a_secret(case: dict[str, Any], load_text: Load) -> None:
    """
    What was written as a secret's value stands in no error and in no cause that a traceback would show.
    """
    with pytest.raises(ConfigError) as caught:
        load_text(case["text"])

    said = f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"

    assert "hunter2" not in said
