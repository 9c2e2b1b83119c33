"""
How quantities are written. The only place that formats bytes, seconds and counts.
"""

GIB = 1 << 30
"""Bytes of a GiB: what SGLang, torch and nvidia-smi call "GB" or count in MiB."""

MIB = 1 << 20
"""Bytes of a MiB."""


def gib(amount: float) -> str:
    """
    Bytes as GiB with two decimals, as SGLang prints them: `51.05 GiB`.
    """
    return f"{amount / GIB:.2f} GiB"


def size(amount: float) -> str:
    """
    Bytes for people: `1.20 GiB`, `340 MiB`.
    """
    return gib(amount) if amount >= GIB else f"{amount / MIB:.0f} MiB"


def figure(value: float) -> str:
    """
    A figure of a log or a forecast, whatever its unit: `132,779`, `51.05`, `0.0045`.
    """
    return f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:.4g}"


def counted(number: int, one: str, more: str) -> str:
    """
    A number with the word for one or for more: `1 process`, `3 processes`.
    """
    return f"{number} {one if number == 1 else more}"


def duration(seconds: float) -> str:
    """
    Seconds for people: `0.3 s`, `42 s`, `4 min 02 s`, `1 h 03 min`.
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
