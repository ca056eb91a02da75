# SPDX-License-Identifier: Apache-2.0
"""Contexts: names for the servers that somebody uses, in a file of theirs. One of them is the current one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from shlex import quote
from typing import Final

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.names import check_name

CONTEXT_VARIABLE: Final = "VGPUCTL_CONTEXT"
_STATE_VARIABLE: Final = "VGPUCTL_STATE"
_MAX_BYTES: Final = 1024 * 1024
_URL: Final = re.compile(r"https://(?P<host>\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+)(?::(?P<port>[0-9]{1,5}))?/?", re.ASCII)
_DEFAULT_PORT: Final = 8443


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """One server: a state directory of this machine, or an address that is reached over TLS with a token."""

    name: str
    state: str | None = None
    url: str | None = None
    ca_file: str | None = None
    """PEM file of whom to trust; None: whom this machine trusts."""
    token_file: str | None = None
    tenant: str | None = None
    """Whose things commands are about that name no tenant."""

    def address(self) -> tuple[str, int]:
        """Host and port of ``url``."""
        parts = _URL.fullmatch(self.url or "")
        if parts is None or int(parts["port"] or 0) > 65535:
            raise InvalidInput(
                "context.url_invalid", f"{ascii(self.url)[:80]} is no address of a server", hint="https://HOST:PORT"
            )
        return parts["host"].strip("[]"), int(parts["port"] or _DEFAULT_PORT)


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """The file's content."""

    current: str | None = None
    contexts: Mapping[str, ClientContext] = field(default_factory=dict)

    def get(self, name: str) -> ClientContext:
        """:raises NotFound: ``context.unknown``"""
        known = self.contexts.get(name)
        if known is None:
            raise NotFound(
                "context.unknown", f"there is no context {ascii(name)[:60]}", hint="'vgpuctl context list' shows them"
            )
        return known

    def added(self, context: ClientContext) -> Contexts:
        """:raises Conflict: ``context.exists``"""
        changed, existing = self.changed(context), self.contexts.get(context.name, context)
        if existing != context:
            corrected = f"vgpuctl context set {context.name} {_options(existing, context)}"
            same = (existing.url, existing.state) == (context.url, context.state)
            what = "there already, with other settings" if same else "another server"
            raise Conflict("context.exists", f"{context.name} is {what}", hint=f"to correct it: {corrected}")
        return changed

    def changed(self, context: ClientContext) -> Contexts:
        """With that context, whatever was called so before.

        :raises InvalidInput: ``context.…``
        """
        check_name(context.name, what="context")
        if context.tenant is not None:
            check_name(context.tenant, what="tenant")
        if (context.state is None) == (context.url is None):
            raise InvalidInput(
                "context.incomplete",
                "a context has either a URL or a state directory",
                hint="give --url or --state, not both",
            )
        if context.url is not None:
            context.address()
        return replace(self, contexts={**self.contexts, context.name: context})

    def without(self, name: str) -> Contexts:
        """:raises NotFound: ``context.unknown``"""
        self.get(name)
        left = {key: context for key, context in self.contexts.items() if key != name}
        return Contexts(current=None if self.current == name else self.current, contexts=left)


def _options(before: ClientContext, after: ClientContext) -> str:
    """Of ``context set``, for what differs."""
    differing = {key: value for key, value in asdict(after).items() if value != getattr(before, key)}
    moved = {"url", "state"} if {"url", "state"} & differing.keys() else set()  # one takes the place of the other
    given = {key: value or "" for key, value in differing.items() if value is not None or key not in moved}
    return " ".join(f"--{key.replace('_', '-')} {quote(value)}" for key, value in given.items())


def path(environment: Mapping[str, str] | None = None) -> Path:
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "vgpuctl" / "contexts.json"


def load(file: Path) -> Contexts:
    """No file: no contexts. :raises InvalidInput: ``context.file_invalid``"""
    try:
        with file.open("rb") as stream:
            data = json.loads(stream.read(_MAX_BYTES))
        members = {member.name for member in fields(ClientContext)} - {"name"}
        known = {name: ClientContext(name=name, **_strings(given, members)) for name, given in data["contexts"].items()}
        current = data["current"]
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidInput(
            "context.file_invalid",
            f"{ascii(str(file))[1:-1]} does not hold contexts",
            hint="remove it and add them again",
        ) from error
    return Contexts(current=current if current in known else None, contexts=known)


def _strings(given: Mapping[str, object], members: set[str]) -> dict[str, str]:
    if not set(given) <= members or not all(isinstance(value, str) for value in given.values()):
        raise ValueError("not a context")
    return {name: str(value) for name, value in given.items()}


def save(file: Path, contexts: Contexts) -> None:
    """In one piece, so that a reader never sees half of it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = {
        name: {key: value for key, value in asdict(context).items() if key != "name" and value is not None}
        for name, context in contexts.contexts.items()
    }
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps({"current": contexts.current, "contexts": known}, indent=2) + "\n")
    scratch.replace(file)


def current(environment: Mapping[str, str] | None = None) -> ClientContext | None:
    """``VGPUCTL_CONTEXT``; else none when ``VGPUCTL_STATE`` names a directory; else the file's current one.

    :raises NotFound: ``context.unknown``
    """
    environment = os.environ if environment is None else environment
    wanted = environment.get(CONTEXT_VARIABLE)
    if not wanted and environment.get(_STATE_VARIABLE):
        return None
    contexts = load(path(environment))
    name = wanted or contexts.current
    return None if name is None else contexts.get(name)
