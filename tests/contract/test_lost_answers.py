# SPDX-License-Identifier: Apache-2.0
"""A VM's whole life over a real channel that is cut each time a change was made and before its answer has left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.core.actions.host_actions import (
    ActionResult,
    DeleteSeed,
    DeleteVolume,
    EnsureNetwork,
    FencingToken,
    HostAction,
    StartDomain,
    StopDomain,
    UndefineDomain,
)
from orchestrator.core.errors import Unknown
from tests.contract.agent_over_ssh import Chain
from tests.contract.test_agent_over_ssh import DEFINE, VM, furnishings, token


def cut_after(way: Chain, done: list[HostAction]) -> Callable[[HostAction, FencingToken], ActionResult]:
    """What the agent does from now on: it acts, notes what it has changed, and a first attempt gets no answer."""
    perform = way.agent.performer.perform

    def lost(action: HostAction, by: FencingToken) -> ActionResult:
        result = perform(action, by)
        done.extend([action] if result.changed else [])
        if by.attempt == 1:
            way.ssh.cut()
        return result

    return lost


@pytest.mark.fault("F10")
def test_whatever_was_done_and_not_answered_is_found_done_and_never_done_twice(
    way: Chain, link: SshHostLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: tuple[HostAction, ...] = (
        *furnishings(way, link, tmp_path),
        DEFINE,
        StartDomain(vm=VM),
        StopDomain(vm=VM, grace_seconds=0),
        UndefineDomain(vm=VM),
        DeleteSeed(vm=VM, seed="a.iso"),
        DeleteVolume(vm=VM, volume="a.qcow2"),
    )
    before = link.things_of(way.host, VM)
    done: list[HostAction] = []
    monkeypatch.setattr(way.agent.performer, "perform", cut_after(way, done))
    for action in changes:
        with pytest.raises(Unknown) as lost:
            link.perform(way.host, action, token(operation=type(action).__name__))
        assert lost.value.code == "agent.channel_cut"
        assert not link.perform(way.host, action, token(operation=type(action).__name__, attempt=2)).changed
    assert done == [action for action in changes if not isinstance(action, EnsureNetwork)]  # which was there
    assert link.things_of(way.host, VM) == before == ()
