# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade that takes hosts out in a part of each day alone, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.maintenance.leaving import parse_window
from tests.fakes.control_plane import A100_HOST, ControlPlane, plane_with
from tests.fakes.drivers import with_bundle
from tests.operations.test_driver_upgrades import HOSTS, NEW, OLD, go_on, keeper, phases, upgraded, with_vms


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, *HOSTS) as made:
        with_bundle(made, OLD)
        with_bundle(made, NEW)
        yield made


def at_time(plane: ControlPlane, hour: int) -> None:
    """The next time that it is so late, in UTC."""
    plane.world.clock.sleep((hour * 3600 - plane.world.clock.now()) % 86400)


def test_hosts_are_taken_out_within_the_window_alone(plane: ControlPlane) -> None:
    with_vms(plane)
    at_time(plane, 12)
    closed = upgraded(plane, window=parse_window("22:00-05:00"))
    assert (closed.state, set(phases(closed).values())) == ("running", {"waiting"})
    assert {vm.state for vm in plane.services.vms.list(None)} == {"running"}
    at_time(plane, 22)
    keeper(plane).round()
    at_time(plane, 6)
    ended = go_on(plane)
    assert sorted(phases(ended).values()) == ["done", "waiting", "waiting"], "what has begun ends, and no other begins"
    assert {vm.state for vm in plane.services.vms.list(None)} == {"running"}
    at_time(plane, 23)
    assert set(phases(go_on(plane)).values()) == {"done"}


def test_a_host_that_was_waited_for_gets_its_driver_within_the_window(plane: ControlPlane) -> None:
    with_vms(plane)
    at_time(plane, 23)
    upgraded(plane, policy="wait", window=parse_window("22:00-05:00"), hosts=(A100_HOST,))
    at_time(plane, 9)
    plane.services.vms.stop("default", f"on-{A100_HOST}")
    plane.engine.drain()
    assert go_on(plane).host(A100_HOST).phase == "emptying"
    at_time(plane, 22)
    assert go_on(plane).host(A100_HOST).phase == "done"
