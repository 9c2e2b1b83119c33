"""
`mtpdeploy diagnose`: what is printed of a log, and as what it ends.
"""

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.engines.sglang.recorded import LOGS, STAMP, start_until

FAILED = str(LOGS / "x25-nextn-on-plain-qwen3.log")
HEALTHY = str(LOGS / "ok-qwen3-dense.log")


def test_a_failure(run: Run) -> None:
    """
    Timeline, cause, proving line, remedy, and the rungs that answer it; status 1.
    """
    said = run("diagnose", FAILED)

    assert 1 == said.status
    assert "draft weights loaded" in said.out
    assert "attention-backend: the attention backend does not work with this GPU" in said.out
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
    assert "the attention backend does not work with this GPU" in said.out


def test_speculation_in_vain(run: Run, tmp_path: Path) -> None:
    """
    A server that is up and accepts nothing: said, in data as well, with the status that `up` has for it.
    """
    asked = "server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE', max_running_requests=512)"
    decode = f"{STAMP}Decode batch, #running-req: 1, #token: 10, accept len: 1.02, gen throughput: 41.2"
    log = tmp_path / "vain.log"
    log.write_text("\n".join([STAMP + asked, *start_until("ready")[1:], *[decode] * 20]))

    said, data = run("diagnose", str(log)), run("diagnose", str(log), "--json")

    assert (8, 8) == (said.status, data.status)
    assert "WARNING: it speculates in vain: accept length 1.02 on 20 decode lines; EAGLE" in said.out
    assert "SGLang     0.5.18 or older" in said.out
    assert "runs       10 requests at a time, 132,000 tokens in all, context 262,144" in said.out
    assert "K 4.03 GiB, V 4.03 GiB" in said.out
    names = [warning["name"] for warning in json.loads(data.out)["warnings"]]
    assert ["speculation-accepts-nothing", "fewer-requests", "pool-below-context"] == names


def test_no_log_of_sglang(run: Run, tmp_path: Path) -> None:
    """
    Alone it is an error; beside others it is told among them.
    """
    empty = tmp_path / "empty.log"
    empty.touch()

    alone, beside = run("diagnose", str(empty)), run("diagnose", str(empty), HEALTHY)
    failed = run("diagnose", str(empty), FAILED)

    assert (2, 2, 1) == (alone.status, beside.status, failed.status)
    assert "empty.log is no log of SGLang: it is empty" in alone.err
    assert "no log of SGLang: it is empty" in beside.out


def test_without_a_file(run: Run) -> None:
    """
    The hint names a file first.
    """
    said = run("diagnose")

    assert 2 == said.status
    assert "diagnose FILE" in said.err


def test_a_clock_that_was_set_back(run: Run, tmp_path: Path) -> None:
    """
    No stage lasts less than nothing.
    """
    log = tmp_path / "clock.log"
    lines = start_until("ready")
    log.write_text("\n".join([*lines[:3], *(line.replace("03:07:28", "02:07:30") for line in lines[3:])]))

    said = run("diagnose", str(log))

    assert "clock set back" in said.out
    assert "-3" not in said.out
