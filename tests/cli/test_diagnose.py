"""
`mtpdeploy diagnose`: what is printed of a log, and as what it ends.
"""

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.engines.sglang.recorded import LOGS

FAILED = str(LOGS / "x25-nextn-on-plain-qwen3.log")
HEALTHY = str(LOGS / "ok-qwen3-dense.log")


def test_a_failure(run: Run) -> None:
    """
    Timeline, cause, proving line, remedy, and the rungs that answer it; status 1.
    """
    said = run("diagnose", FAILED)

    assert 1 == said.status
    assert "draft weights loaded" in said.out
    assert "attention-backend: the attention backend does not work on this GPU" in said.out
    assert "proof: log line 76" in said.out
    assert "answered by triton-attention" in said.out


def test_a_healthy_log(run: Run) -> None:
    """
    No failure, and status 0.
    """
    said = run("diagnose", HEALTHY)

    assert 0 == said.status
    assert "no failure in these" in said.out
    assert "the server became ready" in said.out


def test_data(run: Run) -> None:
    """
    One document for one log, a list for several.
    """
    one = json.loads(run("diagnose", FAILED, "--json").out)
    several = run("diagnose", FAILED, HEALTHY, "--json")

    assert ("attention-backend", 76) == (one["cause"], one["verdict"]["line"])
    assert ["attention-backend", None] == [each["cause"] for each in json.loads(several.out)]
    assert 1 == several.status


def test_no_such_file(run: Run, tmp_path: Path) -> None:
    """
    One error with the name of the file.
    """
    said = run("diagnose", str(tmp_path / "none.log"))

    assert 2 == said.status
    assert "none.log cannot be read: No such file or directory" in said.err


def test_together(run: Run) -> None:
    """
    The log with the root cause is told first and whole, the others in a line each; as data it comes first.
    """
    said = run("diagnose", "--together", HEALTHY, FAILED)
    data = json.loads(run("diagnose", "--together", HEALTHY, FAILED, "--json").out)

    assert 1 == said.status
    assert said.out.startswith(FAILED)
    assert f"{HEALTHY}: got as far as “ready”; no failure shown" in said.out
    assert [FAILED, HEALTHY] == [each["name"] for each in data]


def test_earlier_starts(run: Run, tmp_path: Path) -> None:
    """
    Starts before the last one are told in a line each.
    """
    log = tmp_path / "appended.log"
    log.write_bytes(Path(FAILED).read_bytes() + Path(HEALTHY).read_bytes())

    said = run("diagnose", str(log))

    assert 0 == said.status
    assert "this log holds several starts" in said.out
    assert "the attention backend does not work on this GPU" in said.out
