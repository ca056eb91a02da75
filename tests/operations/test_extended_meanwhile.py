# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot
from orchestrator.core.vms.lease import WantedEnd
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import FakeHosts


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def test_a_lease_that_is_extended_while_its_vm_is_made_stays_extended(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.services.vms.create(replace(create_vm("train"), end=WantedEnd(after_s=3600)))
    first, look = plane.services.vms.get("default", "train").lease_end, FakeHosts.observe_domain

    def extended_meanwhile(link: FakeHosts, host: Host, vm: str) -> DomainSnapshot | None:
        plane.services.vms.extend("default", "train", WantedEnd(after_s=7200))
        return look(link, host, vm)

    monkeypatch.setattr(FakeHosts, "observe_domain", extended_meanwhile)
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    assert (vm.state, vm.addresses) == ("running", ("192.168.122.10",))
    assert first is not None
    assert vm.lease_end is not None
    assert vm.lease_end >= first + 3600
