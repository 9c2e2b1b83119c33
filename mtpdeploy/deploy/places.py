"""
What in a text tells where a machine is, whose, and what lies there: addresses, names, paths, cards.
"""

import re

COMMON_USERS = frozenset(
    {"root", "user", "admin", "ubuntu", "debian", "centos", "fedora", "ec2-user", "azureuser", "opc"}
    | {"runner", "vscode", "jovyan", "nobody"}
)
"""Users that images of clouds and containers come with: they tell of nobody."""

COMMON_NAMES = frozenset({"localhost", "demo", "unknown", "default"})

PUBLIC = re.compile(
    r"(?i)(?:[\w-]+\.)*(?:huggingface\.co|hf\.co|github\.com|githubusercontent\.com|github\.io"
    r"|python\.org|pytorch\.org|nvidia\.com|modelscope\.cn|sglang\.ai|sglang\.io|flashinfer\.ai"
    r"|readthedocs\.io|docker\.io|docker\.com|tiangolo\.com|ghcr\.io|triton-lang\.org|arxiv\.org|wikipedia\.org)"
)
"""Hosts that everybody asks, which SGLang, torch and their libraries name in logs: they tell of nobody."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"

URL_HOST = re.compile(rf"(?<=://)(?:[^\s/@]*@)?({_LABEL}(?:\.{_LABEL})*)(?![\w-])")
"""The host of an address with a scheme (RFC 3986, section 3.2)."""

HOST_NAME = re.compile(
    rf"(?<![\w@/.-])(?:{_LABEL}\.)+(?:com|net|org|edu|gov)(?![\w(-]|\.\w)"
    rf"|(?<![\w@/.-])(?:{_LABEL}\.){{2,}}"
    r"(?:io|ai|dev|app|cloud|info|biz|local|internal|lan|corp|intra|intranet|home|localdomain|arpa"
    r"|at|au|be|ca|ch|cn|cz|de|dk|es|eu|fi|fr|ie|il|it|jp|kr|nl|no|nz|pl|pt|ru|se|sg|tw|uk|us)(?![\w(-]|\.\w)"
)
"""
A name of a host by its last part (IANA's root zone; RFC 6762, appendix G for private ones). Parts that are
words of programs as well (`threading.local`) want two others before them.
"""

IN_HOME = re.compile(
    r"(?<![\w.])(/root|/(?:home|Users)/[^/\s:;,'\"\\<>|&()\[\]{}=]+)/([^\s:;,'\"\\<>|&()\[\]{}]+)"
)
"""What lies in a home directory."""

USUAL = re.compile(
    r"(?:\.mtpdeploy|\.cache|\.local|\.triton|\.config|\.ssh|\.venv|\.nv|\.cupy|\.tilelang|venv|env|sglang|models?"
    r"|miniconda3|anaconda3|miniforge3|\.pyenv|\.conda)(?:/|$)"
)
"""What lies in everybody's home directory: SGLang and its caches, Python, models (whose names stay)."""

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|[01]?[0-9]?[0-9])"
IPV4 = re.compile(rf"(?<![0-9])(?!0+\.|127\.){_OCTET}(?:\.{_OCTET}){{3}}(?![0-9])")
"""An address, but of this machine (127/8) and of none (0/8, where versions of SGLang lie)."""

IPV6 = re.compile(
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,9}(?:(?:\.[0-9]{1,3}){3})?(?:%[0-9A-Za-z]+)?"
)
"""What may hold an IPv6 address (RFC 4291, section 2.2); `ipaddress` decides."""

DASHED = re.compile(
    r"(?<![0-9A-Za-z-])(?:[a-z][a-z0-9]*-)+(?:[0-9]{1,3}-){3}[0-9]{1,3}(?![0-9A-Za-z])(?:\.[\w-]+)*"
)
"""A machine called by its address: `ip-10-0-0-5.ec2.internal`."""

LOGIN = re.compile(r"(?<![\w.+-])([A-Za-z_][\w.+-]*)@([A-Za-z0-9][A-Za-z0-9.-]*)")
"""A user at a machine, or an address of mail."""

HOME = re.compile(r"(?<![\w.])(/(?:home|Users)/)([^/\s:;,'\"\\<>|&()\[\]{}]+)")
"""The home directory of a user."""

GPU = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""A card's own number, as nvidia-smi prints it."""

AWS_SECRET = re.compile(
    r"(?<![\w/+.-])(?=[A-Za-z0-9/+]{0,39}[a-z])(?=[A-Za-z0-9/+]{0,39}[A-Z])(?=[A-Za-z0-9/+]{0,39}[0-9])"
    r"(?!/[a-z]+/)[A-Za-z0-9/+]{40}(?![\w/+=.-])"
)
"""A secret key of Amazon's: 40 characters of base64, which a commit (hexadecimal) and a path are not."""
