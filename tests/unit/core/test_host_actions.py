# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable

import pytest

from orchestrator.core import host_actions
from orchestrator.core.host_actions import ACTIONS, HostAction, inverse


def _example(name: str) -> HostAction:
    make: Callable[..., HostAction] = ACTIONS[name]
    values: dict[str, object] = {}
    for field, kind in typing.get_type_hints(ACTIONS[name]).items():
        values[field] = {int: 7, str: field, bool: True}.get(kind, "qcow2")
    return make(**values)


def test_the_wire_table_names_every_action() -> None:
    assert set(ACTIONS.values()) == set(typing.get_args(host_actions.HostAction))
    assert all(name == cls.__name__ for name, cls in ACTIONS.items())


@pytest.mark.parametrize(
    ("action", "undo"),
    [("CreateVolume", "DeleteVolume"), ("WriteSeed", "DeleteSeed"), ("CreateMdev", "RemoveMdev"),
     ("SetVgpuType", "ClearVgpuType"), ("DefineDomain", "UndefineDomain"), ("StartDomain", "StopDomain"),
     ("AdoptDomain", "ReleaseDomain")],
)  # fmt: skip
def test_what_makes_something_has_an_inverse_about_the_same_thing(action: str, undo: str) -> None:
    made = _example(action)
    taken_back = inverse(made)
    assert type(taken_back).__name__ == undo
    shared = {f.name for f in dataclasses.fields(made)} & {f.name for f in dataclasses.fields(ACTIONS[undo])}
    assert "vm" in shared
    assert all(getattr(made, name) == getattr(taken_back, name) for name in shared)
