from pathlib import Path

import pytest

from mtpdeploy.onbox.cgroups import memory_groups
from tests.onbox.kernel import Kernel

EVENTS = "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"


def test_version_2_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The topmost group that is seen is the container's; the page cache is no use of memory.
    """
    kernel = Kernel(tmp_path, monkeypatch)
    top = kernel.group(
        memory_max="1000\n",
        memory_current="900\n",
        memory_stat="anon 1\ninactive_file 300\n",
        memory_events=EVENTS,
    )

    assert [
        {"path": str(top), "limit": 1000, "used": 600, "oom_kill": 1, "hit": 12, "below": True}
    ] == memory_groups()


def test_version_2_nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The own group comes first, then those above it, each with its own limit.
    """
    kernel = Kernel(tmp_path, monkeypatch, "0::/user.slice/session-9.scope\n")
    kernel.group("user.slice", memory_max="5000\n", memory_events=EVENTS)
    kernel.group("user.slice/session-9.scope", memory_max="max\n", memory_events="oom_kill 4\n")

    assert [("session-9.scope", None, 4), ("user.slice", 5000, 1)] == [
        (Path(group["path"]).name, group["limit"], group["oom_kill"]) for group in memory_groups()
    ]


@pytest.mark.parametrize("mounted_at", ["docker/abc", ""], ids=["whole tree", "the container's part"])
def test_version_1(mounted_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Memory has a tree of its own; in a container its top is the container's group, whatever the path says.
    """
    kernel = Kernel(tmp_path, monkeypatch, "9:cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n")
    folder = kernel.group(
        f"memory/{mounted_at}",
        memory_limit_in_bytes="2000\n",
        memory_usage_in_bytes="1500\n",
        memory_stat="total_inactive_file 500\n",
        memory_oom_control=CONTROL,
        memory_failcnt="7\n",
    )

    assert {
        "path": str(folder).rstrip("/"),
        "limit": 2000,
        "used": 1000,
        "oom_kill": 3,
        "hit": 7,
        "below": False,
    } == memory_groups()[0]


@pytest.mark.parametrize(
    "files",
    [
        {"memory_max": "max\n", "memory_events": "oom_kill\nnonsense\noom_kill many\n"},
        {"memory_limit_in_bytes": "9223372036854771712\n", "memory_oom_control": "under_oom 0\n"},
        {"memory_max": "\0\xff", "memory_current": "-1\n"},
    ],
    ids=["damaged counters", "no limit of version 1", "garbage"],
)
def test_what_is_not_told_is_not_known(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Old kernels count no kills, and what cannot be read is None, never 0.
    """
    kernel = Kernel(tmp_path, monkeypatch)
    kernel.group("memory" if "memory_limit_in_bytes" in files else "", **files)
    (group,) = memory_groups()

    assert [None, None, None, None] == [group[name] for name in ("limit", "used", "oom_kill", "hit")]


@pytest.mark.parametrize("listed", ["0::/../../elsewhere\n", "", "nonsense\n\n::\n"])
def test_no_path_of_our_own(listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A path out of what is seen, or none, means the topmost group.
    """
    kernel = Kernel(tmp_path, monkeypatch, listed)
    kernel.group(memory_events=EVENTS)

    assert [1] == [group["oom_kill"] for group in memory_groups()]


def test_no_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without any, there is nothing to tell.
    """
    Kernel(tmp_path, monkeypatch)

    assert [] == memory_groups()


def test_a_group_that_is_gone_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A login's group goes with its last process: the one above it answers.
    """
    kernel = Kernel(tmp_path, monkeypatch, "0::/elsewhere\n")
    kernel.group("user.slice", memory_events=EVENTS)
    places = [str(kernel.groups / name) for name in ("user.slice/session-9.scope", "user.slice")]

    assert [places[1]] == [group["path"] for group in memory_groups(places)]


def test_this_machine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The real tree, whatever it is, breaks nothing.
    """
    monkeypatch.delenv("MTPDEPLOY_CGROUP", raising=False)

    assert all(
        set(group) == {"path", "limit", "used", "oom_kill", "hit", "below"} for group in memory_groups()
    )
