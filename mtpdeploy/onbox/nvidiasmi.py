"""
What nvidia-smi tells of the GPUs and of who holds their memory, within a limit of time.
"""

from __future__ import annotations

import os
import time

from mtpdeploy.onbox.asked import Asked, nvidia_smi

GPU_FIELDS = "index,uuid,name,memory.total,memory.free,memory.used,compute_cap,power.draw"
HOLDER_FIELDS = "gpu_uuid,pid,used_memory,process_name"


class NvidiaSmi:
    """
    The two questions to nvidia-smi, which is asked as the login would ask it: what the server is given may
    hide the program, or its library.
    """

    def __init__(self, env: dict[str, str], limit: float, fields: str = GPU_FIELDS) -> None:
        self.limit = limit
        self.until = time.monotonic() + limit
        self.program = nvidia_smi(env)
        queries = ["--query-gpu=" + fields, "--query-compute-apps=" + HOLDER_FIELDS]
        words = [[self.program or "", query, "--format=csv,noheader,nounits"] for query in queries]
        self.asked = [Asked(line, dict(os.environ)) for line in words] if self.program else []

    def answer(self) -> dict[str, str]:
        """
        The tables as nvidia-smi prints them, and "ok", "absent" or what went wrong.
        """
        if not self.asked:
            return {"state": "absent"}
        gpus, holders = [asked.answer(self.until) for asked in self.asked]
        if gpus is None:
            return {"state": self.asked[0].problem or f"no answer within {self.limit:g} s"}
        if self.asked[0].status:
            return {"state": self.asked[0].complaint()}
        return {
            "state": "ok",
            "gpus": gpus,
            "holders": holders if holders and not self.asked[1].status else "",
        }
