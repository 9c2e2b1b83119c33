"""
Floor 3: hosts.toml, the environment and the command line, as one server on one host.
"""

from mtpdeploy.inventory.explain import Explained, Row
from mtpdeploy.inventory.load import Inventory, load
from mtpdeploy.inventory.origin import in_toml
from mtpdeploy.inventory.overrides import Overrides
from mtpdeploy.inventory.reach import choose_host, configured_host, host_of
from mtpdeploy.inventory.resolve import Resolved, choose_server, explain, resolve, server_of

__all__ = [
    "Explained",
    "Inventory",
    "Overrides",
    "Resolved",
    "Row",
    "choose_host",
    "choose_server",
    "configured_host",
    "explain",
    "host_of",
    "in_toml",
    "load",
    "resolve",
    "server_of",
]
