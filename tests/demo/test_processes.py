"""The simulated server as processes: their tree, their signals, their port, and what they answer."""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable

import pytest

from mtpdeploy.demo.home import DemoHome
from tests.demo.conftest import PATIENCE_S, MakeHome, Started

TRITON = ("--attention-backend", "triton")
MTP = ("--speculative-algorithm", "NEXTN", "--max-running-requests", "4")
GPU_QUERY = "--query-gpu=index,uuid,name,memory.total,memory.used,memory.free,compute_cap,power.draw"


def eventually(question: Callable[[], bool]) -> bool:
    """Whether the answer becomes yes within the patience of a test."""
    until = time.monotonic() + PATIENCE_S
    while not question():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def roles(home: DemoHome) -> set[str]:
    """The roles of the home's living processes."""
    return {role for _, _, role in home.living()}


def pid_of(home: DemoHome, role: str) -> int:
    """The living process with this role."""
    return next(pid for pid, _, name in home.living() if name == role)


def smi(home: DemoHome, *argv: str) -> str:
    """What the home's nvidia-smi prints."""
    return subprocess.run(
        [home.bin / "nvidia-smi", *argv], env=home.environment, capture_output=True, text=True, check=True
    ).stdout


def test_says_first_that_it_is_simulated(make: MakeHome, port: int) -> None:
    """The first line of every start, even of one that argparse refuses."""
    refused, good = Started(make(), port, "--nonsense"), Started(make(), port, *TRITON)
    refused.wait()
    good.until("fired up")

    for server in (refused, good):
        assert server.log.splitlines()[0].startswith("mtpdeploy demo: this server and its GPU are simulated")


def test_processes_have_the_titles_and_the_group_of_the_real_ones(make: MakeHome, port: int) -> None:
    """Main process with its command line, `sglang::scheduler` and `sglang::detokenizer`, one group."""
    home = make()
    server = Started(home, port, *TRITON).ready()
    shown = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 3) for line in shown.splitlines()]
    main = str(server.process.pid)
    family = {row[3].split("  ")[0].strip("\0 ") for row in rows if row[1] == main}
    groups = {row[2] for row in rows if main in (row[0], row[1])}

    assert {"server", "scheduler", "detokenizer"} == roles(home)
    assert any("-m sglang.launch_server" in row[3] for row in rows if row[0] == main)
    assert all(name.startswith(("sglang::scheduler", "sglang::detokenizer")) for name in family)
    assert 2 == len(family)
    assert {main} == groups


def test_versions_are_where_a_survey_looks(make: MakeHome) -> None:
    """Importlib's metadata, the dist-info directory, and `sglang.__version__`."""
    home = make(sglang_version="0.5.12.post1")
    code = "import importlib.metadata as m, sglang; print(m.version('sglang'), sglang.__version__)"
    out = subprocess.run(
        [home.bin / "python", "-c", code], env=home.environment, capture_output=True, text=True, check=True
    ).stdout

    assert "0.5.12.post1 0.5.12.post1" == out.strip()
    assert (home.path / "site" / "sglang-0.5.12.post1.dist-info" / "METADATA").is_file()


def test_term_when_ready_drains_and_leaves_nothing(make: MakeHome, port: int) -> None:
    """To 0.5.18 it ends by SIGKILL of itself (137), later with status 0; a request in flight is finished."""
    for version, status in (("0.5.9", 137), ("0.5.23", 0)):
        home = make(sglang_version=version, speed=400.0)
        server = Started(home, port, *TRITON).ready()
        answers: list[int] = []
        thread = threading.Thread(
            target=lambda server=server, answers=answers: answers.append(
                server.chat("long", max_tokens=600, ignore_eos=True)[0]
            )
        )
        thread.start()
        server.until("#new-token: 11,")
        os.kill(server.process.pid, signal.SIGTERM)

        assert status == server.wait()
        thread.join()
        assert [200] == answers
        assert "Gracefully exiting... Remaining number of requests 1" in server.log
        assert set() == roles(home)


def test_term_before_ready_is_143(make: MakeHome, port: int) -> None:
    """No handler is there yet: the signal itself ends it, and the children follow."""
    home = make(speed=20.0)
    server = Started(home, port, *TRITON)
    server.until("Load weight begin")
    os.kill(server.process.pid, signal.SIGTERM)

    assert 143 == server.wait()
    assert eventually(lambda: not roles(home))


def test_kill_of_the_main_process_takes_its_children(make: MakeHome, port: int) -> None:
    """Once they have their titles they die with the parent."""
    home = make()
    server = Started(home, port, *TRITON).ready()
    os.kill(server.process.pid, signal.SIGKILL)

    assert 137 == server.wait()
    assert eventually(lambda: not roles(home))


def test_kill_while_children_import_orphans_them(make: MakeHome, port: int) -> None:
    """Before that they are handed to another parent and go on: the detokenizer for good."""
    home = make(speed=40.0)
    server = Started(home, port, *TRITON)
    assert eventually(lambda: {"scheduler", "detokenizer"} <= roles(home))
    os.kill(server.process.pid, signal.SIGKILL)

    assert 137 == server.wait()
    assert eventually(lambda: roles(home) == {"detokenizer"})
    assert "max_total_num_tokens=" in server.log


def test_dead_scheduler_ends_the_server_from_0_5_10_on(make: MakeHome, port: int) -> None:
    """Before, nothing watches: the HTTP process stays and /health turns 503."""
    home = make(sglang_version="0.5.12")
    server = Started(home, port, *TRITON).ready()
    os.kill(pid_of(home, "scheduler"), signal.SIGKILL)

    assert 137 == server.wait()
    assert "crashed with exit code -9. Triggering SIGQUIT for cleanup..." in server.log

    home = make(sglang_version="0.5.9")
    server = Started(home, port, *TRITON).ready()
    os.kill(pid_of(home, "scheduler"), signal.SIGKILL)

    assert 503 == server.get("/health")[0]
    assert server.process.poll() is None


def test_port_of_another_server_yields_the_ready_line_and_status_3(make: MakeHome, port: int) -> None:
    """The real one's trap: bind error, then "ready to roll" thanks to the other server, then exit 3."""
    home = make()
    old = Started(home, port, *TRITON, "--mem-fraction-static", "0.6").ready()
    os.kill(pid_of(home, "scheduler"), 0)
    other = Started(make(), port, *TRITON)

    assert 3 == other.wait()
    assert "error while attempting to bind on address ('127.0.0.1'" in other.log
    assert other.log.index("address already in use") < other.log.index("ready to roll")
    assert "Uvicorn running" not in other.log
    assert 200 == old.get("/health")[0]


def test_streams_and_counts(make: MakeHome, port: int) -> None:
    """Server-sent events with the usage at the end, /generate with the speculative counts, metrics."""
    server = Started(make(), port, *TRITON, *MTP, "--enable-metrics").ready()
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 30}
    body["stream_options"] = {"include_usage": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        events = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    chunks = [json.loads(event) for event in events[:-1]]
    status, generated = server.post(
        "/generate", {"text": "x", "sampling_params": {"max_new_tokens": 60, "ignore_eos": True}}
    )

    assert "[DONE]" == events[-1]
    assert "length" == chunks[-2]["choices"][0]["finish_reason"]
    assert 30 == chunks[-1]["usage"]["completion_tokens"]
    assert 200 == status
    assert generated["meta_info"]["spec_accept_length"] == 60 / generated["meta_info"]["spec_verify_ct"]
    assert 'sglang:spec_accept_length{model_name="' in server.get("/metrics")[1]
    assert 400 == server.post("/v1/chat/completions", {"messages": []})[0]
    assert 404 == server.get("/nonsense")[0]


@pytest.mark.parametrize(
    ("version", "names", "absent"),
    [
        ("0.5.9", {"spec_accept_token_num", "spec_draft_token_num"}, {"spec_num_correct_drafts"}),
        ("0.5.11", {"spec_accepted_drafts"}, {"spec_num_correct_drafts", "spec_accept_token_num"}),
        ("0.5.14", {"spec_accepted_drafts", "spec_num_correct_drafts"}, {"spec_accept_token_num"}),
        ("0.5.23", {"spec_num_correct_drafts", "spec_num_proposed_drafts"}, {"spec_accepted_drafts"}),
    ],
)
def test_a_reply_tells_what_its_release_tells(
    make: MakeHome, port: int, version: str, names: set[str], absent: set[str]
) -> None:
    """Accepted drafts under their name of that release; the first token is the prefill's."""
    extra = ("--mamba-scheduler-strategy", "extra_buffer") if version == "0.5.11" else ()
    flags = (*TRITON, *MTP, *extra, "--max-running-requests", "4")
    server = Started(make(sglang_version=version), port, *flags).ready()
    wanted = {"max_new_tokens": 61, "ignore_eos": True}
    meta = server.post("/generate", {"text": "x", "sampling_params": wanted})[1]["meta_info"]
    accepted = next(meta[name] for name in names if "draft_" not in name and "proposed" not in name)

    assert names <= set(meta)
    assert not absent & set(meta)
    assert "decode_throughput" not in meta
    assert meta["e2e_latency"] > 0
    assert 60 <= meta["spec_verify_ct"] + accepted <= 63


def test_the_power_of_the_card(make: MakeHome, port: int) -> None:
    """Power and clocks against their limits, and the bit that says idle."""
    home = make()
    fields = "power.draw,enforced.power.limit,clocks.sm,clocks.max.sm,clocks_event_reasons.active"
    said = smi(home, f"--query-gpu={fields}", "--format=csv,noheader,nounits").strip()

    assert "23.40, 600.00, 180, 3090, 0x0000000000000001" == said
    Started(home, port, *TRITON).ready()

    assert smi(home, "--query-gpu=clocks.sm", "--format=csv,noheader,nounits").strip() == "2430"


def test_never_more_requests_at_once_than_the_pools_allow(make: MakeHome, port: int) -> None:
    """Two may run: of five sent together the others wait in the queue, and all are answered."""
    home = make(speed=400.0)
    server = Started(home, port, *TRITON, "--max-running-requests", "2").ready()
    statuses: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: statuses.append(server.chat("go", max_tokens=200, ignore_eos=True)[0])
        )
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [200] * 5 == statuses
    assert "#running-req: 2" in server.log
    assert "#running-req: 3" not in server.log


def test_same_prefix_again_is_cached(make: MakeHome, port: int) -> None:
    """The radix cache's hit shows in the usage; without the cache there is none."""
    prompt = "once more with the same beginning " * 40
    for flags, hit in (((), True), (("--disable-radix-cache", "--max-running-requests", "8"), False)):
        server = Started(make(), port, *TRITON, *flags).ready()
        server.chat(prompt, max_tokens=4)
        usage = server.chat(prompt + "and another end", max_tokens=4)[1]["usage"]

        assert hit == (usage["prompt_tokens_details"]["cached_tokens"] > 300)
        os.kill(server.process.pid, signal.SIGKILL)
        server.wait()


def test_nvidia_smi_tells_what_the_ledger_holds(make: MakeHome, port: int) -> None:
    """Idle, serving and after the end; the card keeps its name, the table says that it is simulated."""
    home = make()
    before = smi(home, GPU_QUERY, "--format=csv,noheader,nounits").strip().split(", ")
    server = Started(home, port, *TRITON).ready()
    during = smi(home, GPU_QUERY, "--format=csv,noheader,nounits").strip().split(", ")
    apps = smi(home, "--query-compute-apps=pid,process_name,used_gpu_memory", "--format=csv,noheader,nounits")
    scheduler = pid_of(home, "scheduler")
    os.kill(server.process.pid, signal.SIGKILL)
    server.wait()

    assert eventually(lambda: not roles(home))
    after = smi(home, GPU_QUERY, "--format=csv,noheader,nounits").strip().split(", ")
    assert "NVIDIA RTX PRO 6000 Blackwell Server Edition" == before[2]
    assert ["97887", "2", "97247", "12.0"] == before[3:7]
    assert int(during[4]) > 60_000
    assert 97887 - 638 == int(during[4]) + int(during[5])
    assert f"{scheduler}, sglang::scheduler, {int(during[4]) - 2}" == apps.strip()
    assert before[4] == after[4]
    assert "SIMULATED" in smi(home)
    assert "memory.used [MiB]\n2 MiB" in smi(home, "--query-gpu=memory.used", "--format=csv")
    assert smi(home, "-L").startswith("GPU 0: NVIDIA RTX PRO 6000 Blackwell Server Edition (UUID: GPU-")
