"""
What a shell or a container prints where SGLang is not found or is ended; read at the end of a log only.
"""

from mtpdeploy.core.diagnosis import Cause, Signature

SHELL: tuple[Signature, ...] = (
    Signature(
        cause=Cause.SGLANG_MISSING,
        pattern=(
            r"(?:^|[ /])(?:sglang|python[\d.]*): (?:command )?not found$"
            r"|python[\d.]*: No module named sglang$"
            r"|command not found: (?:sglang|python[\d.]*)$"
        ),
        example="bash: line 1: sglang: command not found",
        source="bash, dash, zsh; Python's runpy",
    ),
    Signature(
        cause=Cause.NO_GPU,
        pattern=r"could not select device driver .{0,20} with capabilities: \[\[gpu",
        example=(
            'docker: Error response from daemon: could not select device driver "" with capabilities: '
            "[[gpu]]."
        ),
        source="Docker without NVIDIA's container toolkit",
    ),
    Signature(
        cause=Cause.HOST_OOM_KILLED,
        pattern=(
            r"Out of memory: Killed process \d+|killed by the OOM killer|Detected \d+ oom[_-]kill event"
            r"|\bOOMKilled\b"
        ),
        example="slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks",
        source="Linux, systemd, Slurm, Kubernetes",
    ),
)
"""Why SGLang was not there, or was ended."""

ORPHANED: tuple[Signature, ...] = (
    Signature(
        cause=Cause.VANISHED,
        pattern=r"^(?:BrokenPipeError|ConnectionResetError): \[Errno \d+\]",
        example="BrokenPipeError: [Errno 32] Broken pipe",
        source="a scheduler whose main process was killed during its start, 0.5.23",
        weight=1,
    ),
)
"""The last exception of a process that lost the main one, which was ended without a word."""
