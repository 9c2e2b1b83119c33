"""
Data for programs on stdout; everything else goes to stderr.
"""

import sys
from typing import Any

import click
from msgspec import json


def print_json(document: Any) -> None:
    """
    One document, indented, on stdout.
    """
    click.echo(json.format(json.encode(document), indent=2).decode())


def print_json_line(document: Any) -> None:
    """
    One document in one line on stdout, flushed at once.
    """
    sys.stdout.write(json.encode(document).decode() + "\n")
    sys.stdout.flush()
