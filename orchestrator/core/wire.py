# SPDX-License-Identifier: Apache-2.0
"""Snapshots, host actions, tokens and results as plain JSON and back, strictly typed.

An action with a field we do not know is refused, since we would do less than was asked.
A snapshot may carry more than we know: the agent may be newer than we are.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

import cattrs
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError

from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.host_actions import ACTIONS, ActionResult, HostAction, Token
from orchestrator.core.snapshot import HostSnapshot

T = TypeVar("T")

_PRIMITIVES: tuple[type, ...] = (str, int, bool)


def _exactly(value: object, kind: type) -> object:
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected, not {type(value).__name__}")
    return value


def _is_tuple(kind: object) -> bool:
    return get_origin(kind) is tuple


def _converter(*, forbid_extra_keys: bool) -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=forbid_extra_keys, prefer_attrib_converters=False)
    for kind in _PRIMITIVES:
        # cattrs would turn 7 into "7" and None into "None": a wrong type has to be an error.
        converter.register_structure_hook(kind, _exactly)

    def structure_list(value: object, kind: Any) -> tuple[object, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"a list expected, not {type(value).__name__}")
        item = get_args(kind)[0]
        return tuple(converter.structure(element, item) for element in value)

    converter.register_structure_hook_func(_is_tuple, structure_list)
    return converter


_STRICT = _converter(forbid_extra_keys=True)
_TOLERANT = _converter(forbid_extra_keys=False)

_STRUCTURE_ERRORS = (BaseValidationError, ForbiddenExtraKeysError, ValueError, TypeError, KeyError)


def _why(error: Exception) -> str:
    if isinstance(error, BaseValidationError):
        return "; ".join(cattrs.transform_error(error))
    return str(error)


def _sent_by_controller(converter: cattrs.Converter, data: object, kind: type[T]) -> T:
    try:
        return converter.structure(data, kind)
    except _STRUCTURE_ERRORS as error:
        raise InvalidInput(
            "agent.request_invalid",
            f"the request holds no valid {kind.__name__}",
            hint="upgrade the agent: the controller may be newer than it",
            details=_why(error),
        ) from error


def _sent_by_agent(data: object, kind: type[T]) -> T:
    try:
        return _TOLERANT.structure(data, kind)
    except _STRUCTURE_ERRORS as error:
        raise Unknown(
            "agent.answer_invalid",
            f"the agent's answer holds no valid {kind.__name__}",
            hint="upgrade the agent with vgpuctl host upgrade-agent",
            details=_why(error),
        ) from error


def _plain(value: object) -> dict[str, Any]:
    plain: dict[str, Any] = _TOLERANT.unstructure(value)
    return plain


def action_to_dict(action: HostAction) -> dict[str, Any]:
    """``{"action": class name, …fields}``."""
    return {"action": type(action).__name__, **_plain(action)}


def action_from_dict(data: dict[str, object]) -> HostAction:
    """The inverse of :func:`action_to_dict`.

    :raises InvalidInput: ``agent.unknown_action`` or ``agent.request_invalid``
    """
    name = data.get("action")
    kind = ACTIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidInput(
            "agent.unknown_action",
            f"this agent has no action {ascii(name)[:60]}",
            hint="upgrade the agent with vgpuctl host upgrade-agent",
        )
    return _sent_by_controller(_STRICT, {key: value for key, value in data.items() if key != "action"}, kind)


def token_to_dict(token: Token) -> dict[str, Any]:
    return _plain(token)


def token_from_dict(data: object) -> Token:
    """:raises InvalidInput: ``agent.request_invalid``"""
    return _sent_by_controller(_STRICT, data, Token)


def result_to_dict(result: ActionResult) -> dict[str, Any]:
    return _plain(result)


def result_from_dict(data: object) -> ActionResult:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, ActionResult)


def snapshot_to_dict(snapshot: HostSnapshot) -> dict[str, Any]:
    return _plain(snapshot)


def snapshot_from_dict(data: object) -> HostSnapshot:
    """:raises Unknown: ``agent.answer_invalid``"""
    return _sent_by_agent(data, HostSnapshot)
