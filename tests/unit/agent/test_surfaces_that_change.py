# SPDX-License-Identifier: Apache-2.0
"""What the driver shows changes between reading and writing, or makes no sense."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mdev import MdevDevices
from orchestrator.agent.attachments.vendor_vfio import TypedFunctions
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.sysfs.write import error_for
from orchestrator.core.actions.host_actions import ClearVgpuType, MakeVgpu, RemoveMdev
from orchestrator.core.errors import Fatal
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, L40S, VF = "0000:01:00.0", "0000:02:00.0", "0000:02:00.1"
UUID = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
TYPE = MakeVgpu(vm="a", parent=VF, type_name="NVIDIA L40S-2Q")
HEADER = "ID    : vGPU Name"


class Host:
    """Two GPUs. With ``vanishes`` a write finds its file gone, and what it was to remove as well."""

    def __init__(self, root: Path) -> None:
        self.sysfs = FakeSysfs(root)
        self.sysfs.add_t4(T4)
        self.sysfs.add_l40s(L40S, enabled=1)
        self.ledger = Ledger(self.sysfs.paths.ledger, site="s", epoch=1, boot_id="boot-1")
        self.ledger.manage_gpus((T4, L40S))
        self.vanishes = False
        files = DeviceFiles(self.sysfs.paths, self.ledger, FakeTiming(), dict, self._write)
        self.mdevs, self.functions = MdevDevices(files), TypedFunctions(files)

    def _write(self, path: Path, value: str) -> None:
        self.sysfs.write(path, value)
        if self.vanishes:
            raise error_for(errno.ENOENT, path, value)

    def creatable(self, text: str) -> None:
        (self.sysfs.paths.pci(VF) / "nvidia/creatable_vgpu_types").write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.fault("F53")
def test_what_vanishes_while_it_is_removed_is_removed(host: Host) -> None:
    host.mdevs.make(MakeVgpu(vm="a", uuid=UUID, parent=T4, type_name="GRID T4-2Q"))
    host.functions.make(TYPE)
    host.vanishes = True
    assert host.mdevs.remove(RemoveMdev(vm="a", uuid=UUID)).changed
    assert host.functions.remove(ClearVgpuType(vm="a", vf=VF)).changed
    assert host.ledger.owner(f"mdev:{UUID}") is None
    assert host.ledger.owner(f"vf:{VF}") is None


@pytest.mark.fault("F60")
@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{HEADER}\n",
        HEADER,
        "\x00\xff",
        "1148\n",
        f"{HEADER}\n1148 NVIDIA L40S-2Q\n",
        f"{HEADER}\n : NVIDIA L40S-2Q",
    ],
)
def test_a_list_of_types_without_the_type_is_a_refusal_and_never_another_type(host: Host, text: str) -> None:
    host.creatable(text)
    with pytest.raises(Fatal) as refused:
        host.functions.make(TYPE)
    assert refused.value.code == "vgpu.no_room"
    assert host.sysfs.writes == []
    assert host.ledger.owner(f"vf:{VF}") is None


@pytest.mark.fault("F60")
def test_lines_that_are_none_do_not_hide_the_others(host: Host) -> None:
    host.creatable(f"{HEADER}\nx : y\n\n1145 :\n1148 : NVIDIA L40S-2Q\n")
    assert host.functions.make(TYPE).changed
