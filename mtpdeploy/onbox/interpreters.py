"""
Which Python of the box has SGLang, in which version, and beside which packages; nothing is imported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from typing import Any, Mapping

from mtpdeploy.onbox.asked import Asked
from mtpdeploy.onbox.identity import proc_root, read_file

PROBE_LIMIT = 6.0
SHIMS = "/shims/"
RELEASE = re.compile(r"0\.[0-9]+\.[0-9]+(\.post[0-9]+)?")
QUOTED_FLAG = re.compile(r"[\"'](--[a-z0-9][a-z0-9-]*)[\"']")
FLAG_FIELD = re.compile(r"^    ([a-z][a-z0-9_]*): (?:[A-Za-z.]+\.)?A\[", re.MULTILINE)

PROBE = r"""
import json, os, re, sys
from importlib.util import find_spec
names = ("sglang", "sgl_kernel", "sglang_kernel", "torch", "flashinfer_python", "transformers", "triton")
record = re.compile(r"([A-Za-z0-9_.-]+?)(?:-([0-9][^-]*))?(?:-py3[^-]*)?\.(?:dist|egg)-info$")
found = {}
for place in sys.path:
    try:
        entries = os.listdir(place or ".")
    except OSError:
        continue
    for entry in entries:
        match = record.match(entry)
        name = match.group(1).replace("-", "_").lower() if match else ""
        if name in names and match.group(2):
            found.setdefault(name, match.group(2))
        elif name in names:
            try:
                with open(os.path.join(place, entry, "PKG-INFO"), encoding="utf-8") as info:
                    found.setdefault(name, re.search(r"(?m)^Version: (\S+)", info.read()).group(1))
            except (OSError, AttributeError):
                pass
try:
    spec = find_spec("sglang")
    folder = list(spec.submodule_search_locations or [""])[0] if spec else ""
except Exception:
    folder = ""
for name in ("_version.py", "version.py"):
    source = os.path.join(folder, name)
    if folder and "sglang" not in found and os.path.exists(source):
        with open(source, encoding="utf-8") as file:
            match = re.search(r"(?m)^(?:__version__|version)\b[^\"'\n]*[\"']([^\"']+)", file.read())
        if match:
            found["sglang"] = match.group(1)
if not folder:
    found.pop("sglang", None)
version = sys.version.split()[0]
print(json.dumps({"packages": found, "folder": folder, "version": version, "executable": sys.executable}))
"""


class Interpreters:
    """
    The question to every Python that may have SGLang: first to the first, then to all others at once.

    They are asked with the environment that the server will get, since PYTHONPATH may be where SGLang
    comes from; a bare name is looked up on the server's PATH and on the login's. Where one is configured, no
    other is ever chosen; if it lacks SGLang the others are looked at all the same, so that a message can name
    the one that would do.
    """

    def __init__(self, configured: str | None, places: list[str], env: dict[str, str]) -> None:
        self.own = executable(configured, env) or executable(configured, os.environ) if configured else None
        self.configured = configured
        self.until = time.monotonic() + PROBE_LIMIT
        self.env = env
        self.looked: list[str] = []
        self.paths = self._paths(([configured] if configured else []) + places)
        self._first = [(path, self._ask(path)) for path in self.paths[:1]]

    def _paths(self, places: list[str]) -> list[str]:
        found: dict[tuple[str, str], str] = {}
        for place in places + first_process_places():
            paths = [path for path in (executable(place, self.env), executable(place, os.environ)) if path]
            if not paths:
                self.looked.append(f"{place}: not there")
            for path in paths:
                found.setdefault((os.path.dirname(path), os.path.realpath(path)), path)
        return list(found.values())

    def _ask(self, path: str) -> Asked:
        return Asked([path, "-c", PROBE], self.env)

    def answer(self, known_versions: list[str] | None) -> dict[str, Any]:
        """
        The interpreter to use, and what every place that was looked at said.
        """
        told = [self._told(path, asked) for path, asked in self._first]
        if not any(answer and "sglang" in answer["packages"] for answer in told):
            others = [(path, self._ask(path)) for path in self.paths[1:]]
            told += [self._told(path, asked) for path, asked in others]
        working = [answer for answer in told if answer is not None]
        fitting = [answer for answer in working if "sglang" in answer["packages"]] or working
        if self.configured:
            fitting = [answer for answer in working if answer["path"] == self.own]
        if not fitting:
            return {"path": None, "version": None, "packages": {}, "looked": self.looked, "flags": []}
        chosen = fitting[0]
        version = chosen["packages"].get("sglang")
        return {
            "path": chosen["executable"] if SHIMS in chosen["path"] else chosen["path"],
            "version": chosen["version"],
            "packages": chosen["packages"],
            "looked": self.looked,
            "flags": flags(chosen["folder"]) if version and is_unknown(version, known_versions) else [],
        }

    def _told(self, path: str, asked: Asked) -> dict[str, Any] | None:
        text = asked.answer(self.until)
        try:
            answer = json.loads(text or "")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.looked.append(f"{path}: {asked.problem or asked.complaint()}")
            return None
        version = answer["packages"].get("sglang")
        self.looked.append(f"{path}: " + (f"sglang {version}" if version else "no sglang"))
        return dict(answer, path=path)


def executable(place: str, env: Mapping[str, str]) -> str | None:
    """
    The full path of a program, a bare name looked up in PATH; None where there is none.
    """
    return shutil.which(os.path.expanduser(place), path=env.get("PATH", os.defpath))


def first_process_places() -> list[str]:
    """
    Where the container's own first process would find a Python: a login over SSH often lacks its PATH.
    """
    words = read_file(f"{proc_root() or '/proc'}/1/environ").decode("utf-8", "replace").split("\0")
    folders = [word[5:].split(":") for word in words if word.startswith("PATH=")]
    found = [os.path.join(folder, "python3") for folder in (folders[0] if folders else [])]
    return [path for path in found if os.access(path, os.X_OK)]


def is_unknown(version: str, known_versions: list[str] | None) -> bool:
    """
    Whether the flags of a version have to be read from its source: a build without a release number, or
    one that the table of flags does not have.
    """
    if known_versions is not None:
        return version not in known_versions
    return RELEASE.fullmatch(version) is None or version.startswith("0.0.")


def flags(folder: str) -> list[str]:
    """
    The names of the server's flags, read from the source of an installed SGLang.

    Up to 0.5.13 they stand quoted in srt/server_args.py; later most follow from annotated fields there
    or, from 0.5.20, in srt/arg_groups/fields.
    """
    found: set[str] = set()
    places = [os.path.join(folder, "srt", "server_args.py")]
    for parent, _, names in os.walk(os.path.join(folder, "srt", "arg_groups")):
        places += [os.path.join(parent, name) for name in names if name.endswith(".py")]
    for place in places:
        text = read_file(place).decode("utf-8", "replace")
        found.update(QUOTED_FLAG.findall(text))
        found.update("--" + name.replace("_", "-") for name in FLAG_FIELD.findall(text))
    return sorted(found)
