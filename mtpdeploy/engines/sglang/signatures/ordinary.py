"""
What the catalogue has no name for, and what merely accompanies a death.
"""

from mtpdeploy.core.diagnosis import Cause, Signature

ORDINARY_SCHEDULER = Signature(
    cause=Cause.SCHEDULER_EXCEPTION,
    pattern=r"^[\w.]+",
    example="RuntimeError: 0 active drivers ([]). There should only be one.",
    source="a real start without a GPU, 0.5.23",
    weight=5,
)
"""An exception that ended the scheduler and that the catalogue has no name for."""

ORDINARY_PARENT = Signature(
    cause=Cause.PYTHON_EXCEPTION,
    pattern=r"^[\w.]+",
    example=(
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2"
    ),
    source="a real start with a broken override, 0.5.23",
    weight=5,
)
"""An exception that ended the main process and that the catalogue has no name for."""

ORDINARY_DETOKENIZER = Signature(
    cause=Cause.DETOKENIZER_DIED,
    pattern=r"^[\w.]+",
    example="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    source="sglang 0.5.9 managers/detokenizer_manager.py",
    weight=5,
)
"""Any exception that ended the detokenizer (77)."""

WARMUP = Signature(
    cause=Cause.WARMUP_FAILED,
    pattern=r"^Initialization failed\. warmup error:",
    example="Initialization failed. warmup error: Traceback (most recent call last):",
    source="sglang 0.5.9 entrypoints/http_server.py",
    weight=3,
)
"""The first request failed (73): what the scheduler says, before it or after, goes before."""

SILENT = Signature(
    cause=Cause.SCHEDULER_DIED,
    pattern=r"^(?:Received sigquit from a child process|SIGQUIT received)",
    example="Received sigquit from a child process. It usually means the child failed.",
    source="sglang 0.5.9 entrypoints/engine.py; a real start, 0.5.23",
    weight=1,
)
"""A child failed: always a consequence, and worth naming only where nothing was said before."""
