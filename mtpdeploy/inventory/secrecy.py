"""
What is a secret, so that none is written where others read: hosts.toml, a command line, a log.
"""

import re

SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|API_?KEY|SECRET|(SECRET|ACCESS|PRIVATE|AUTH)_KEY|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$",
    re.IGNORECASE,
)
"""Names of variables whose value opens something: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, OPENAI_API_KEY,
AWS_SECRET_ACCESS_KEY, WANDB_API_KEY, GIT_PASSWORD."""

SECRET_TEXT = re.compile(
    r"(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[bp]-)[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}"
)
"""What the keys of Hugging Face, OpenAI, GitHub, GitLab, Slack and AWS begin with (their documentation)."""

URL_PASSWORD = re.compile(r"((?<![a-z0-9+.-])[a-z0-9+.-]+://[^\s/?#@:]*:)[^\s/?#@]+@", re.IGNORECASE)
"""A URL with a password in it (RFC 3986, section 3.2.1): postgres://me:PASSWORD@db, http://me:PASSWORD@proxy."""

LOGIN_PASSWORD = re.compile(r"(?<![^\s@:/,])[^\s@:/,]*:(?!//)[^\s@,]{1,1000}@")
"""A password before the address of a machine: `root:PASSWORD@host`, also within an ssh line or a list."""

SECRET_FLAGS = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})
"""Flags of SGLang whose value is a secret (0.5.6-0.5.23, server_args.py)."""


def is_secret(name: str, value: object) -> bool:
    """
    Whether a variable of that name, or with that value, must not be written down.
    """
    text = value if isinstance(value, str) else ""
    return bool(SECRET_NAME.search(name) or SECRET_TEXT.search(text) or URL_PASSWORD.search(text))


def masked(text: str) -> str:
    """
    A text as an error may repeat it: what looks like a key, and the passwords of URLs, are left out.
    """
    return URL_PASSWORD.sub(r"\1…@", SECRET_TEXT.sub("…", text))


def without_secret(line: str) -> str:
    """
    A line of a file as an error may repeat it: what follows a secret's name is left out.
    """
    name, equals, value = line.partition("=")
    bare = name.strip().strip("\"'").replace("-", "_")
    if equals and (is_secret(bare, value) or bare.lower() in SECRET_FLAGS):
        return f"{name}= …"
    return masked(line)
