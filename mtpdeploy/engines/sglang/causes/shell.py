"""
What calls for the user before SGLang runs at all.
"""

from mtpdeploy.core.diagnosis import Cause, Knowledge, Next

KNOWLEDGE: dict[Cause, Knowledge] = {
    Cause.SGLANG_MISSING: Knowledge(
        Next.STOP,
        'Install SGLang there, or start it with the Python that has it: `python = "/…/bin/python"` of the '
        "host, the container image that holds it.",
    ),
}
"""Nothing that a rung could change."""
