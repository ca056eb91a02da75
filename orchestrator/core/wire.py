# SPDX-License-Identifier: Apache-2.0
"""Snapshots, host actions, tokens and results as plain JSON and back, strictly typed.

An action with a field we do not know is refused, since we would do less than was asked.
A snapshot may carry more than we know: the agent may be newer than we are.

Knows the kinds of field that core's dataclasses have, no others; on a host, importing a general library for this
took longer than everything else the agent does at its start.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, TypeVar

from orchestrator.core.actions import (
    backups,
    bug_reports,
    disk_snapshots,
    fabric,
    gpu_cards,
    host_actions,
    nics,
    pools,
    reboots,
    settle_ledger,
    suspension,
    vgpu_settings,
    volumes,
)
from orchestrator.core.actions.backups import UsesRepository
from orchestrator.core.actions.disk_snapshots import CopiesDisk, LongCopy
from orchestrator.core.actions.host_actions import (
    ActionResult,
    DefineDomain,
    EnsureNetwork,
    FencingToken,
    HostAction,
    MakesDevice,
    RemovesDevice,
)
from orchestrator.core.actions.live_move import MovedVm, MoveLoad
from orchestrator.core.actions.vgpu_settings import RestoreGpuSetting, SetGpuSetting
from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot, Unchanged

_HOMES: Final = (
    host_actions, backups, bug_reports, disk_snapshots, fabric, gpu_cards, nics, pools, reboots, settle_ledger,
    suspension, vgpu_settings, volumes,
)  # fmt: skip
_KINDS: Final = (
    HostAction, MakesDevice, RemovesDevice, LongCopy, CopiesDisk, UsesRepository, SetGpuSetting, RestoreGpuSetting,
)  # fmt: skip

ACTIONS: Final[dict[str, type[HostAction]]] = {
    name: found
    for home in _HOMES
    for name, found in vars(home).items()
    if isinstance(found, type) and issubclass(found, HostAction) and found not in _KINDS
}


T = TypeVar("T")
Reader = Callable[[object], Any]

_PRIMITIVES = (str, int, bool)
_UNCHANGED = "unchanged"
"""A member that no snapshot has."""
_HAD_XML = (DefineDomain.__name__, EnsureNetwork.__name__)
"""Until protocol 3."""
_UNIONS = (typing.Union, types.UnionType)


class _Mismatch(Exception):
    """A value is not of its field's type; the text says why, ``where`` grows on the way up from the field."""

    where = ""

    def below(self, part: str) -> _Mismatch:
        self.where = part + self.where
        return self


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Field name → its type, whether it may be left out."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: (hints[field.name], field.default is not dataclasses.MISSING) for field in dataclasses.fields(kind)
    }


@functools.cache
def _reader(kind: Any, strict: bool) -> Reader:
    """What makes a value of ``kind`` of plain JSON. Put together once: a snapshot has thousands of values."""
    if kind in _PRIMITIVES:
        return functools.partial(_primitive, kind)
    origin = typing.get_origin(kind)
    if origin is tuple:
        item = typing.get_args(kind)[0]
        return functools.partial(_items, item if item in _PRIMITIVES else None, _reader(item, strict))
    if origin is typing.Literal:
        return functools.partial(_literal, typing.get_args(kind))
    if origin in _UNIONS:  # only ever "something or None"
        (something,) = (option for option in typing.get_args(kind) if option is not type(None))
        return functools.partial(_optional, _reader(something, strict))
    fields = [(name, _reader(field, strict)) for name, (field, _) in _fields(kind).items()]
    needed = [name for name, (_, optional) in _fields(kind).items() if not optional]
    return functools.partial(_object, kind, fields, needed, strict)


def _reader_of(kind: Any, *, strict: bool) -> Reader:
    return _reader(kind, strict)


def _primitive(kind: type, value: object) -> Any:
    if type(value) is not kind:  # True is an int to Python, and "7" is none to us
        raise _Mismatch(f"{kind.__name__} expected, not {type(value).__name__}")
    return value


def _literal(options: tuple[str, ...], value: object) -> Any:
    if value not in options:
        raise _Mismatch(f"{ascii(value)[:40]} is none of {', '.join(options)}")
    return value


def _optional(read: Reader, value: object) -> Any:
    return None if value is None else read(value)


def _items(primitive: type | None, read: Reader, value: object) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _Mismatch(f"a list expected, not {type(value).__name__}")
    if primitive is not None and all(type(item) is primitive for item in value):
        return tuple(value)
    items = []
    for number, item in enumerate(value):
        try:
            items.append(read(item))
        except _Mismatch as error:
            raise error.below(f"[{number}]") from None
    return tuple(items)


def _object(kind: Any, fields: list[tuple[str, Reader]], needed: list[str], strict: bool, value: object) -> Any:
    if not isinstance(value, dict):
        raise _Mismatch(f"an object expected, not {type(value).__name__}")
    unknown = sorted(str(name) for name in value.keys() - _fields(kind).keys()) if strict else []
    if unknown:
        raise _Mismatch(f"no such field: {ascii(unknown[0])[:60]}")
    for name in needed:
        if name not in value:
            raise _Mismatch(f"{name} is missing")
    members = {}
    for name, read in fields:
        if name in value:
            try:
                members[name] = read(value[name])
            except _Mismatch as error:
                raise error.below(f".{name}") from None
    return kind(**members)


def _sent_by_controller(data: object, kind: type[T]) -> T:
    try:
        value: T = _reader_of(kind, strict=True)(data)
    except _Mismatch as error:
        raise InvalidInput(
            "agent.request_invalid",
            f"the request holds no valid {kind.__name__}",
            hint="upgrade the agent: the controller may be newer than it",
            details=f"{kind.__name__}{error.where}: {error}",
        ) from error
    return value


def _sent_by_agent(data: object, kind: type[T]) -> T:
    try:
        value: T = _reader_of(kind, strict=False)(data)
    except _Mismatch as error:
        raise Unknown(
            "agent.answer_invalid",
            f"the agent's answer holds no valid {kind.__name__}",
            hint="'vgpuctl host upgrade-agent HOST' brings the agent that belongs to this server",
            details=f"{kind.__name__}{error.where}: {error}",
        ) from error
    return value


def action_to_dict(action: HostAction) -> dict[str, Any]:
    """``{"action": class name, …fields}``."""
    return {"action": type(action).__name__, **_told(action, top=True)}


def _told(value: Any, *, top: bool = False) -> dict[str, Any]:
    """Fields that are as without them are left out, for agents that do not know them yet. Of an action itself (``top``)
    those alone that say nothing: people read what is to be done."""
    found = {}
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        if one == field.default and not (top and one):
            continue
        if isinstance(one, tuple):
            one = tuple(_told(item) if dataclasses.is_dataclass(item) else item for item in one)
        elif dataclasses.is_dataclass(one):
            one = _told(one)
        found[field.name] = one
    return found


def action_from_dict(data: dict[str, object]) -> HostAction:
    """The inverse of :func:`action_to_dict`.

    :raises InvalidInput: ``agent.unknown_action``, ``agent.xml_refused`` or ``agent.request_invalid``
    """
    name = data.get("action")
    if name in _HAD_XML and "xml" in data:
        raise InvalidInput(
            "agent.xml_refused",
            f"this agent takes no {name} with XML in it",
            hint="upgrade the server: protocol 4 describes domains and networks field by field",
        )
    kind = ACTIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidInput(
            "agent.unknown_action",
            f"this agent has no action {ascii(name)[:60]}",
            hint="'vgpuctl host upgrade-agent HOST' brings the agent that belongs to this server",
        )
    return _sent_by_controller({key: value for key, value in data.items() if key != "action"}, kind)


def token_to_dict(token: FencingToken) -> dict[str, Any]:
    return dataclasses.asdict(token)


def token_from_dict(data: object) -> FencingToken:
    """:raises InvalidInput: ``agent.request_invalid``"""
    return _sent_by_controller(data, FencingToken)


def result_to_dict(result: ActionResult) -> dict[str, Any]:
    return dataclasses.asdict(result)


def result_from_dict(data: object) -> ActionResult:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, ActionResult)


def moved_from_dict(data: object) -> MovedVm:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, MovedVm)


def load_from_dict(data: object) -> MoveLoad:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, MoveLoad)


def snapshot_to_dict(snapshot: HostSnapshot) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(snapshot)
    return plain


def _plain(value: Any) -> Any:
    """As ``dataclasses.asdict``, which copies deeply what cannot change and takes ten times as long."""
    if value is None or type(value) in _PRIMITIVES:
        return value
    if type(value) is tuple:
        return tuple(_plain(item) for item in value)
    kind: Any = type(value)
    return {name: _plain(getattr(value, name)) for name in _fields(kind)}


def snapshot_from_dict(data: object) -> HostSnapshot:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, HostSnapshot)


def snapshot_digest(snapshot: HostSnapshot) -> str:
    """Of all but what changes by itself. Both sides work it out: what an agent of another version has more or less
    gives another one, and the whole snapshot is sent."""
    timeless = dataclasses.replace(snapshot, storage_free_bytes=0)
    text = json.dumps(_plain(timeless), separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def unless_known(snapshot: HostSnapshot, known: object) -> HostSnapshot | Unchanged:
    """``known``: digest of what the asker has, None when it has nothing."""
    if known is None or known != snapshot_digest(snapshot):
        return snapshot
    return Unchanged(storage_free_bytes=snapshot.storage_free_bytes)


def look_to_dict(look: HostSnapshot | Unchanged) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(look)
    return {_UNCHANGED: plain} if isinstance(look, Unchanged) else plain


def look_from_dict(data: object) -> HostSnapshot | Unchanged:
    """The inverse of :func:`look_to_dict`. An agent that knows nothing of digests always sends the whole snapshot.

    :raises Unknown: ``agent.answer_invalid``"""
    if isinstance(data, dict) and _UNCHANGED in data:
        return _sent_by_agent(data[_UNCHANGED], Unchanged)
    return snapshot_from_dict(data)


@dataclasses.dataclass(frozen=True)
class _OneDomain:
    domain: DomainSnapshot | None


def domain_to_dict(domain: DomainSnapshot | None) -> dict[str, Any]:
    return {"domain": _plain(domain)}


def domain_from_dict(data: object) -> DomainSnapshot | None:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, _OneDomain).domain


@dataclasses.dataclass(frozen=True)
class _Things:
    things: tuple[str, ...]


def things_to_dict(things: tuple[str, ...]) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(_Things(things))
    return plain


def things_from_dict(data: object, vm: str) -> tuple[str, ...]:
    """What the host shows of the VM. An agent that cannot tell it alone sends the whole snapshot.

    :raises Unknown: ``agent.answer_invalid``"""
    if isinstance(data, dict) and "things" in data:
        return _sent_by_agent(data, _Things).things
    return things_of(snapshot_from_dict(data), vm)
