# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator

import pytest

from orchestrator.core.actions.backups import UsesRepository
from orchestrator.core.actions.disk_snapshots import CopiesDisk, LongCopy
from orchestrator.core.actions.host_actions import HostAction, MakesDevice, RemovesDevice
from orchestrator.core.actions.settle_ledger import KnownVm, KnownVolume
from orchestrator.core.actions.vgpu_settings import RestoreGpuSetting, SetGpuSetting
from orchestrator.core.gpu.device import Device
from orchestrator.core.wire import ACTIONS
from orchestrator.sim.agent import HANDLERS
from tests.fakes.fake_actions import HANDLERS as FAKE_HANDLERS

DEVICE = Device(kind="mdev", gpu="g", parent="p", type_name="t", name="n")


def _example(name: str) -> HostAction:
    make: Callable[..., HostAction] = ACTIONS[name]
    hints = typing.get_type_hints(ACTIONS[name])
    examples = {
        int: 7, bool: True, tuple[Device, ...]: (DEVICE,), tuple[str, ...]: ("g",), tuple[KnownVm, ...]: (),
        tuple[KnownVolume, ...]: (),
    }  # fmt: skip
    return make(
        **{
            field.name: field.name if hints[field.name] is str else examples.get(hints[field.name], "qcow2")
            for field in dataclasses.fields(ACTIONS[name])
        }
    )


_ALIKE = {
    MakesDevice, RemovesDevice, LongCopy, CopiesDisk, UsesRepository, SetGpuSetting, RestoreGpuSetting,
}  # fmt: skip


def _actions_below(kind: type[HostAction]) -> Iterator[type[HostAction]]:
    """All but those that only say what some have alike."""
    for one in kind.__subclasses__():
        if one not in _ALIKE:
            yield one
        yield from _actions_below(one)


def test_the_wire_table_names_every_action() -> None:
    assert set(ACTIONS.values()) == set(_actions_below(HostAction))
    assert all(name == cls.__name__ for name, cls in ACTIONS.items())


def test_the_simulated_agent_and_the_fake_host_perform_every_action() -> None:
    assert set(HANDLERS) == set(ACTIONS.values()) == set(FAKE_HANDLERS)


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_has_an_inverse_about_the_same_thing_or_says_why_it_has_none(name: str) -> None:
    made = _example(name)
    taken_back = made.inverse()
    assert (taken_back is None) == bool(made.no_inverse)
    if taken_back is not None:
        fields = {field.name for field in dataclasses.fields(taken_back)}
        shared = {field.name for field in dataclasses.fields(made)} & fields
        assert shared & {"vm", "volume", "pool_id", "backup"}
        assert all(getattr(made, name) == getattr(taken_back, name) for name in shared)
