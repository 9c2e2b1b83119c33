"""
Why drafts may be rejected, as the files on the box tell: the checkpoint, the draft's own, the log.
"""

from __future__ import annotations

import json
import os
from typing import Any

from mtpdeploy.onbox.model import model_facts

LEFT_OUT = "not found in params_dict"
"""What SGLang logs of a tensor that it has no place for (models/qwen3_5_mtp.py and others, 0.5.9-0.5.23)."""

LONGEST_LOG = 16 * 1024 * 1024
"""Bytes of a log that are read: models are loaded at its beginning."""

MOST = 5


def left_out_lines(path: str) -> list[str]:
    """
    Lines of a log that name a tensor of multi-token prediction which was not loaded.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read(LONGEST_LOG).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line.strip()[:300] for line in lines if LEFT_OUT in line and "mtp" in line][:MOST]


def main(request: dict[str, Any]) -> None:
    """
    Answer `{"model", "draft", "env", "log"}` (`draft` and `log` may be null) with what is known of each.
    """
    env = dict(os.environ, **request["env"])
    models = {name: model_facts(request[name], env) if request[name] else None for name in ("model", "draft")}
    log = os.path.expanduser(request["log"]) if request["log"] else ""
    print(json.dumps(dict(models, left_out=left_out_lines(log) if log else [])))
