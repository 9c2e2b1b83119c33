import json
from typing import Any

import pytest

from mtpdeploy.core.machine import Host
from mtpdeploy.errors import CommandFailed
from mtpdeploy.remote.aftermath import look_after
from mtpdeploy.remote.box import Result
from mtpdeploy.remote.run import Run

ANSWER: dict[str, Any] = {
    "before": {"at": 1.0, "boot": "b", "first": "7", "groups": [], "gpus": [], "kernel": 5.5},
    "boot": "b",
    "first": "7",
    "groups": [{"path": "/x", "limit": None, "used": 5, "oom_kill": 1, "hit": None, "below": True}],
    "kernel": ["NVRM: Xid (PCI:0000:01:00): 79, gone"],
    "rooms": {"work_dir": {"path": "/w", "free": 1, "total": 2, "files_free": None}},
    "nvidia_smi": {
        "state": "ok",
        "gpus": "0, GPU-a, H, 100, 40, 60, 9.0, 70, 00000000:01:00.0\nnonsense\n",
        "holders": "GPU-a, 9, 50, p\n",
    },
}


class Answering:
    """
    A box that answers every script with the same document.
    """

    host = Host(name="here", address="127.0.0.1")
    round_trips = 0

    def __init__(self, document: object) -> None:
        self.document = document

    def run(self, _script: str, **_: object) -> Result:
        """
        The answer, whatever is asked.
        """
        return Result(0, json.dumps(self.document).encode(), b"")


def look(document: object) -> Any:
    """
    What a client makes of an answer.
    """
    run = Run(work_dir="~/.mtpdeploy", name="one", python="python3")
    return look_after(Answering(document), run, model="/m", env={})  # type: ignore[arg-type]


def test_an_answer_is_read_whole() -> None:
    """
    Every part arrives as what it is.
    """
    told = look(ANSWER)

    assert ("b", 1, "ok") == (told.before.boot, told.groups[0].oom_kill, told.nvidia_smi)
    assert ({0: "00000000:01:00.0"}, ["GPU-a"], [9]) == (
        told.addresses,
        [gpu.uuid for gpu in told.gpus],
        [holder.pid for holder in told.holders],
    )
    assert (1, 2) == (told.rooms["work_dir"].free, told.rooms["work_dir"].total)


@pytest.mark.parametrize(
    "change",
    [
        {"nvidia_smi": None},
        {"nvidia_smi": {}},
        {"nvidia_smi": {"state": "ok", "gpus": 7}},
        {"groups": "many"},
        {"rooms": {"work_dir": {}}},
        {"kernel": [7]},
        {"boot": 7},
    ],
)
def test_nonsense_is_one_error(change: dict[str, object]) -> None:
    """
    An answer that is none is told with what to do, and never a traceback.
    """
    with pytest.raises(CommandFailed, match="answers nonsense") as caught:
        look({**ANSWER, **change})

    assert caught.value.hint
