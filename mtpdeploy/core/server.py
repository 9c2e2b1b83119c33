"""
What is to run: everything that decides how a server behaves.
"""

from typing import Any

from msgspec import Struct, structs

FlagValue = bool | int | float | str | list[Any]
"""A value of a server flag as TOML gives it. `False` for a switch means: not given."""


class Mtp(Struct, frozen=True):
    """
    The speculative part of a server: what the `speculative_*` flags say.
    """

    algorithm: str
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    draft_model_path: str | None = None


class ServerSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """
    One server as asked or as conceded.

    `flags` holds SGLang's own field names in their newest spelling (`mem_fraction_static`,
    `mamba_radix_cache_strategy`); the spelling for the version on the box is chosen when the
    command is built. `env` is exported to the server, name by name. `secrets` names variables
    that the script reads from the box's secrets file (mode 0600) and never contains.
    """

    name: str
    flags: dict[str, FlagValue]
    env: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    engine: str = "sglang"
    ladder: str = "default"
    allow_without_mtp: bool = False
    gpus: tuple[int, ...] = ()

    @property
    def model_path(self) -> str:
        """
        The model's folder on the box, or its hub name.
        """
        return str(self.flags["model_path"])

    @property
    def port(self) -> int:
        """
        The HTTP port on the box; SGLang's own default is 30000 (0.5.6-0.5.23, server_args.py).
        """
        return int(self.number("port") or 30000)

    @property
    def served_name(self) -> str:
        """
        The name that requests put into `model`.
        """
        return str(self.flags.get("served_model_name") or self.model_path)

    @property
    def mtp(self) -> Mtp | None:
        """
        The speculation asked for, or None where the server is to run without.
        """
        algorithm = self.flags.get("speculative_algorithm")
        if not algorithm:
            return None
        draft = self.flags.get("speculative_draft_model_path")
        return Mtp(
            algorithm=str(algorithm),
            num_steps=self._int("speculative_num_steps"),
            eagle_topk=self._int("speculative_eagle_topk"),
            num_draft_tokens=self._int("speculative_num_draft_tokens"),
            draft_model_path=str(draft) if draft else None,
        )

    def number(self, flag: str) -> float | None:
        """
        A flag's numeric value, or None where it is not given.
        """
        value = self.flags.get(flag)
        return None if value is None or isinstance(value, (str, list)) else float(value)

    def with_flags(self, **changes: FlagValue | None) -> "ServerSpec":
        """
        The same server with some flags changed; None takes a flag out.
        """
        flags = {**self.flags, **{k: v for k, v in changes.items() if v is not None}}
        for name, value in changes.items():
            if value is None:
                flags.pop(name, None)
        return structs.replace(self, flags=flags)

    def with_env(self, **changes: str) -> "ServerSpec":
        """
        The same server with some environment variables changed.
        """
        return structs.replace(self, env={**self.env, **changes})

    def _int(self, flag: str) -> int | None:
        value = self.number(flag)
        return None if value is None else int(value)


class Change(Struct, frozen=True):
    """
    One difference between two servers: a flag (`max_running_requests`) or a variable (`env.NAME`).
    """

    field: str
    before: FlagValue | None
    after: FlagValue | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.field} = {self.after}"
        if self.after is None:
            return f"{self.field} not given (was {self.before})"
        return f"{self.field} {self.before} → {self.after}"


def changes(before: ServerSpec, after: ServerSpec) -> tuple[Change, ...]:
    """
    List what differs between two servers, flags first, each group by name.
    """
    return _differences("", before.flags, after.flags) + _differences("env.", before.env, after.env)


def purpose_of(asked: ServerSpec, compares: str) -> str:
    """
    What a restart is for that belongs to a comparison with run `compares`; empty for any other start.
    """
    if not compares:
        return ""
    if asked.mtp is None:
        return f"without speculation, for a comparison with run {compares}"
    return f"with speculation again, after a comparison with run {compares}"


def _differences(prefix: str, before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
    names = sorted(before.keys() | after.keys())
    return tuple(
        Change(prefix + name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )
