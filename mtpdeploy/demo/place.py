"""
Where the demo box keeps its things on this machine, and its models in place of the real ones.
"""

import socket
import sys
from pathlib import Path, PurePosixPath

from mtpdeploy.core.server import ServerSpec
from mtpdeploy.demo.home import DemoHome

MODELS = ("Qwen3.6-27B", "Qwen3.6-27B-without-mtp")
"""The models that the demo box has."""


def folder(state: Path) -> Path:
    """
    The demo box's folder below the state directory.
    """
    return state / "demo"


def home(state: Path) -> Path:
    """
    The home directory of a login on the demo box.
    """
    return folder(state) / "home"


def stand_in(server: ServerSpec, state: Path) -> ServerSpec:
    """
    The server with the demo box's own model in place of a real one of the same name.

    A server without a port gets one that is free on this machine, or the one that its demo box serves on.
    """
    name = PurePosixPath(server.model_path).name
    if name in MODELS:
        server = server.with_flags(model_path=str((home(state) / "models" / name).resolve()))
    return server if "port" in server.flags else server.with_flags(port=_port(state, server.port))


def _port(state: Path, usual: int) -> int:
    """
    The port that this demo box had last time, else the usual one, else the next one that is free.
    """
    kept = folder(state) / "port"
    if kept.is_file() and kept.read_text().isdigit():
        usual = int(kept.read_text())
        if _is_free(usual) or (home(state).is_dir() and DemoHome(home(state), sys.executable).living()):
            return usual
    port = next(port for port in range(usual, 65536) if _is_free(port))
    folder(state).mkdir(parents=True, mode=0o700, exist_ok=True)
    kept.write_text(str(port))
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
