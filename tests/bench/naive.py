"""
The same job as people write it with fabric: put a script, run it with nohup, look every 3 s.
"""

import getpass
import io
import shlex
import time

from fabric import Connection

from mtpdeploy.engines.sglang import SGLANG
from tests.bench.rig import Rig
from tests.bench.witness import ReadyWitness

PHASES = (0.4, 1.2, 2.0, 2.8, 3.6)
"""Seconds that the server's start takes longer, so that the looks meet it at any phase."""


def connection(rig: Rig, port: int) -> Connection:
    """
    With fabric's own defaults.
    """
    return Connection(
        "127.0.0.1",
        user=getpass.getuser(),
        port=port,
        connect_kwargs={"key_filename": str(rig.sshd.key)},
    )


def own_time(rig: Rig, port: int, phase: float) -> float:
    """
    Seconds from nothing to the word that the server is ready, less the server's own.
    """
    command = SGLANG.command(rig.server(), str(rig.home.bin / "python"), "0.5.9")
    words = shlex.join(word for line in command.argv for word in line)
    text = f"#!/bin/sh\nexport SGLANG_ENABLE_SPEC_V2=1\nsleep {phase}\nexec {words}\n"
    log = f"{rig.home.path}/naive-{port}-{phase}.log"
    with ReadyWitness(rig.home.path) as witness:
        begun = time.perf_counter()
        with connection(rig, port) as box:
            box.run("mkdir -p naive", hide=True)
            box.put(io.StringIO(text), "naive/run.sh")
            box.run("chmod +x naive/run.sh", hide=True)
            box.run(f"MTPDEPLOY_RUN=naive nohup naive/run.sh > {log} 2>&1 < /dev/null & echo $!", hide=True)
            launched = time.perf_counter()
            while "ready to roll" not in box.run(f"tail -n 50 {log}", hide=True).stdout:
                time.sleep(3)
            known = time.perf_counter()
        written = witness.seen().counter
    rig.stop_server()
    return (launched - begun) + (known - written)
