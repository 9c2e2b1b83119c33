"""
Where the demo box keeps its things on this machine, and its models in place of the real ones.
"""

from pathlib import Path, PurePosixPath

from mtpdeploy.core.server import ServerSpec

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
    """
    name = PurePosixPath(server.model_path).name
    if name not in MODELS:
        return server
    return server.with_flags(model_path=str((home(state) / "models" / name).resolve()))
