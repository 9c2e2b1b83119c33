"""Processes of somebody else on the box: one that holds GPU memory, one that listens on a port."""

from __future__ import annotations

import socket
import sys
import time
from typing import List

from . import processes
from .ledger import GIB, Ledger
from .settings import home, load


def hold_memory(gib: float) -> None:
    """Hold so much of the card until killed."""
    ledger = Ledger(home(), load(), "/usr/bin/python3")
    ledger.activity = "idle"
    ledger.allocate("training", gib * GIB)
    time.sleep(86400)


def listen(kind: str, port: int) -> None:
    """Listen on the port: `silent` accepts and says nothing, `http` answers 404 to everything."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(64)
    kept = []
    while True:
        client, _ = server.accept()
        if kind == "silent":
            kept.append(client)
            continue
        with client:
            client.recv(1 << 16)
            client.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")


def main(argv: List[str]) -> None:
    """`memory GIB` or `listen KIND PORT`."""
    processes.record(home(), f"stranger {argv[0]}")
    if argv[0] == "memory":
        hold_memory(float(argv[1]))
    else:
        listen(argv[1], int(argv[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
