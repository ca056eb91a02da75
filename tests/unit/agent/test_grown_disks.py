# SPDX-License-Identifier: Apache-2.0
"""A disk that an abandoned growth has left larger than its VM is said to have."""

from __future__ import annotations

import subprocess

import pytest

from orchestrator.core.actions.disk_snapshots import TakeSnapshot
from orchestrator.core.actions.host_actions import DefineDomain
from orchestrator.core.actions.volumes import GrowDisk
from orchestrator.core.errors import Conflict
from orchestrator.core.vms.disk_snapshot import snapshot_file
from tests.unit.agent.bench import Bench, domain_of

MIB = 2**20


def test_what_is_refused_of_it_names_the_size_that_settles_it(furnished: Bench) -> None:
    vm, disk = furnished.vm, f"{furnished.vm}.qcow2"
    furnished.do(DefineDomain(vm=vm, domain=domain_of(vm)))
    path = furnished.storage.paths.volumes / disk
    subprocess.run(["qemu-img", "resize", "-q", "-f", "qcow2", path, "8M"], check=True)
    take = TakeSnapshot(vm=vm, disk=disk, volume=snapshot_file(vm, "1" * 36), size_bytes=MIB)
    for refused in (take, GrowDisk(vm=vm, volume=disk, size_bytes=4 * MIB)):
        with pytest.raises(Conflict) as error:
            furnished.do(refused)
        assert error.value.code == "volume.differs"
        assert "vm resize-disk NAME --size 8MiB" in str(error.value.hint)
    furnished.do(GrowDisk(vm=vm, volume=disk, size_bytes=8 * MIB))
    furnished.do(TakeSnapshot(vm=vm, disk=disk, volume=take.volume, size_bytes=8 * MIB))
