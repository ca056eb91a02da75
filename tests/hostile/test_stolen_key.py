# SPDX-License-Identifier: Apache-2.0
"""Somebody has the server's key and says to the agent what no server says. Every field of every action takes every
hostile value; the agent, its ledger and libvirt's test driver are real. What is not the VM's stays as it is."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.agent.libvirt.domain_devices import parts_of
from orchestrator.core.actions.host_actions import (
    ActionResult,
    AdoptDomain,
    BindVfio,
    ClearVgpuType,
    CreateGpuInstance,
    CreateVolume,
    DefineDomain,
    DeleteImage,
    DeleteSeed,
    DeleteVolume,
    DestroyGpuInstance,
    EnsureBridgedNetwork,
    EnsureNetwork,
    FencingToken,
    HostAction,
    MakeVgpu,
    ManageGpus,
    ReleaseDomain,
    RemoveMdev,
    RemoveNetwork,
    RestoreDriver,
    SetMigMode,
    StartDomain,
    UndefineDomain,
    VgpuPosition,
    WriteSeed,
)
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.errors import Conflict, Denied, VgpuctlError
from orchestrator.core.gpu.device import Device
from orchestrator.core.protocol import read_frame
from orchestrator.core.wire import action_from_dict, action_to_dict
from tests.hostile.families.family import EFFECTLESS
from tests.unit.agent.bench import L40S, MDEV, T4, VF1, Bench, domain_of, mdev

MINE, OTHER = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10", "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"
FOREIGN_GPU, FOREIGN_MDEV = "0000:03:00.0", "7b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c17"
TEST_DOMAIN = "6695eb01-f6a4-8304-79aa-97f2502e193f"
"""That libvirt's test driver always has: somebody else's."""
VF = Device(kind="vendor_vfio", gpu=L40S, parent=VF1, type_name="NVIDIA L40S-2Q", name=VF1)
SHA = hashlib.sha256(b"\0" * 4096).hexdigest()

TEXTS = (
    "", " ", ".", "..", "/", "/etc/shadow", "/dev/sda", "../../../etc/shadow", "volumes/../ledger", "a/b", "a\\b", "\0",
    "a\0b", "\n", "a\nb", "a\r", "\t", "\x1b[31m", "\x7f", "\u202e", "\u200b", "\ufeff", "\ud800", "\uffff", "é", "١",
    "<disk/>", "&lt;", "&xxe;", "]]>", "<!--", "'", '"', "'/><emulator>/tmp/x</emulator><x a='",
    "<!DOCTYPE d [<!ENTITY x SYSTEM 'file:///etc/shadow'>]>", "$(id)", "`id`", "%s", "{}", "-o", "--help", "*", "~",
    "a" * 130, "a" * 70_000, OTHER, f"{OTHER}.qcow2", f"{OTHER}.iso", f"volume:{OTHER}.qcow2", "link.qcow2", "link.iso",
    "stray.qcow2", "x.part-00", TEST_DOMAIN, MDEV, MDEV.upper(), FOREIGN_MDEV, VF1, T4, FOREIGN_GPU, "0000:99:00.0",
    "0000:00:00.0", "00000000:02:00.1", "02:00.1", "0000:02:00.1 ", "ffff:ff:1f.7", "0000:02:00.8", "backbone",
    "default", "virbr0", "0.0.0.0", "0.0.0.0/0", "127.0.0.0/8", "::/0", "qemu:commandline", "none", "ask-controller",
    "raw", "passthrough", "mdev", "nonsense",
)  # fmt: skip
NUMBERS = (-(2**63), -(2**31), -1, 0, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 10**30)
NO_VALUES: tuple[object, ...] = (None, True, 1.5, [], {}, [[]], [None], ["x"], {"x": 1}, "1", 1)


class Attack(Bench):
    """A host with two VMs of ours, and things that are not ours: a domain, a GPU, a network, files."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.host.add_t4(FOREIGN_GPU)
        self.host.make_mdev(FOREIGN_GPU, "nvidia-231", FOREIGN_MDEV)
        (root / "sys/class/net/br0/bridge").mkdir(parents=True)
        for vm in (MINE, OTHER):
            self.furnish(vm)
        self.do(MakeVgpu(vm=OTHER, uuid=MDEV, parent=T4, type_name="GRID T4-2Q"))
        self.do(MakeVgpu(vm=OTHER, parent=VF1, type_name="NVIDIA L40S-2Q"))
        self.do(DefineDomain(vm=MINE, domain=domain_of(MINE)))
        (self.host.paths.volumes / "stray.qcow2").write_bytes(b"stray")
        for directory, name in ((self.host.paths.volumes, "link.qcow2"), (self.host.paths.seeds, "link.iso")):
            (root / "secret").write_text("secret")
            (directory / name).symlink_to(root / "secret")
        self.libvirt.networkDefineXML("<network><name>backbone</name><forward mode='route'/><ip address='10.9.0.1' "
                                      "netmask='255.255.255.0'/></network>")  # fmt: skip

    def close(self) -> None:
        self.libvirt.networkLookupByName("backbone").undefine()
        super().close()

    def do(self, action: HostAction) -> ActionResult:
        """Always as the same operation, so that the fence has nothing to write down."""
        return self.performer.perform(action, FencingToken(site="s", epoch=1, operation="one", attempt=1))

    def devices(self) -> tuple[object, ...]:
        """What the kernel shows."""
        switches = ("current_vgpu_type", "sriov_numvfs", "driver_override")
        found = [path for path in sorted(self.host.paths.pci_devices.rglob("*")) if path.name in switches]
        mdevs = sorted(path.name for path in mdev_devices(self.host.paths).iterdir())
        return (mdevs, [(str(path), path.read_text()) for path in found])

    def take_back(self, action: HostAction) -> None:
        """Files, networks and vGPUs of its own are the key's to make; taking them back must leave all as it was."""
        inverse = action.inverse()
        if inverse is not None and isinstance(action, (CreateVolume, WriteSeed, MakeVgpu)):
            self.do(inverse)
        if not isinstance(action, (EnsureNetwork, EnsureBridgedNetwork, RemoveNetwork)):
            return
        self.do(EnsureNetwork(name="default", subnet="192.168.122.0/24"))
        for network in self.libvirt.listAllNetworks():
            if network.name() not in {"default", "backbone"}:
                self.do(RemoveNetwork(name=network.name()))

    def state(self) -> tuple[object, ...]:
        """Everything that an action may change, but for the fence's memory."""
        storage, ledger = self.host.paths.storage, self.host.paths.ledger
        files = [
            (str(path), path.is_symlink() or path.stat().st_size)
            for path in sorted(storage.rglob("*"))
            if ledger not in (path, *path.parents)
        ]
        file = self.ledger.file
        with file.read():
            kept = [sorted(map(str, file.all(f"SELECT * FROM {table}"))) for table in ("owners", "gpus", "functions")]
            wanted = tuple(file.all("SELECT vm, devices FROM wanted WHERE running OR devices NOT IN ('', '[]')"))
        networks = [(one.name(), one.isActive(), one.XMLDesc()) for one in self.libvirt.listAllNetworks()]
        domains = {one.UUIDString(): (one.isActive(), one.XMLDesc()) for one in self.libvirt.listAllDomains()}
        return (files, kept, wanted, sorted(networks), domains, self.devices())


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    made = Attack(tmp_path_factory.mktemp("attack"))
    yield made
    made.close()


BASES: tuple[HostAction, ...] = (
    DefineDomain(vm=MINE, domain=domain_of(MINE)),
    DefineDomain(vm=MINE, domain=domain_of(MINE, mdev())),
    DefineDomain(vm=MINE, domain=domain_of(MINE, VF)),
    EnsureNetwork(name="backbone", subnet="10.10.0.0/24"),
    EnsureBridgedNetwork(name="backbone", bridge="br0", vlan=None, dhcp_servers=("192.0.2.1",)),
    RemoveNetwork(name="backbone"),
    CreateVolume(vm=MINE, volume=f"{OTHER}.qcow2", base_sha256=SHA, base_format="raw", size_bytes=2**20),
    DeleteVolume(vm=MINE, volume=f"{OTHER}.qcow2"),
    WriteSeed(vm=MINE, seed=f"{OTHER}.iso", iso_base64="AAAA"),
    DeleteSeed(vm=MINE, seed=f"{OTHER}.iso"),
    DeleteImage(sha256=SHA, image_format="raw"),
    MakeVgpu(vm=MINE, uuid=MDEV, parent=T4, type_name="GRID T4-2Q"),
    RemoveMdev(vm=MINE, uuid=MDEV),
    MakeVgpu(vm=MINE, parent=VF1, type_name="NVIDIA L40S-2Q"),
    ClearVgpuType(vm=MINE, vf=VF1),
    MakeVgpu(vm=MINE, parent=VF1, type_name="NVIDIA L40S-2Q", at=VgpuPosition(within="instance", start=0)),
    MakeVgpu(vm=MINE, uuid=MDEV, parent=T4, type_name="GRID T4-2Q", at=VgpuPosition(within="instance", start=0)),
    CreateGpuInstance(vm=MINE, gpu=FOREIGN_GPU, profile="1g.5gb", start=0),
    DestroyGpuInstance(vm=MINE, gpu=FOREIGN_GPU, start=0),
    SetMigMode(gpu=FOREIGN_GPU, on=True),
    BindVfio(vm=MINE, gpu=FOREIGN_GPU, model="x"),
    RestoreDriver(vm=MINE, gpu=FOREIGN_GPU),
    ManageGpus(gpus=("0000:99:00.0",)),
    AdoptDomain(vm=TEST_DOMAIN, devices=(), running=True),
    AdoptDomain(vm=MINE, devices=(mdev(),), running=True),
    ReleaseDomain(vm=TEST_DOMAIN, devices=()),
    StartDomain(vm=TEST_DOMAIN),
    UndefineDomain(vm=TEST_DOMAIN),
)
"""Each already aims at what is not the VM's, but for the first."""


def spoiled(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """(field, value with that field spoiled), for each field at any depth and each hostile value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key != "action":
                for field, changed in spoiled(inner, (*path, key)):
                    yield field, {**value, key: changed}
        yield ".".join((*path, "more")), {**value, "xml": "<domain/>"}
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        for field, changed in spoiled(value[0], path):
            yield field, [changed, *value[1:]]
        yield ".".join((*path, "twice")), [*value, *value]
    elif path != ("vm",) or value == TEST_DOMAIN:
        for hostile in (*TEXTS, *NUMBERS, *NO_VALUES):
            if hostile != value and (path, hostile) != (("vm",), OTHER):  # which VM of the site is the key's to say
                yield ".".join(path), hostile


def refused(attack: Attack, request: dict[str, object]) -> VgpuctlError | None:
    """What the agent says to the frame; None: it did something, or nothing was to be done."""
    body = json.dumps(request).encode()
    try:
        attack.do(action_from_dict(read_frame(io.BytesIO(struct.pack(">I", len(body)) + body)) or {}))
    except VgpuctlError as error:
        return error
    return None


def check_line(error: VgpuctlError, case: str) -> None:
    assert error.message, case
    assert error.message.isprintable(), case
    assert len(error.message) < 400, case


def attacks(base: HostAction, step: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is asked, the request): as it is, then with one field spoiled; every ``step``-th."""
    request = action_to_dict(base)
    for field, changed in islice(chain([("", request)], spoiled(request)), 0, None, step):
        yield f"{request['action']}.{field}: {ascii(changed)[:600]}", changed


SHARES = [pytest.param(4, id="a quarter"), pytest.param(1, id="all", marks=pytest.mark.soak)]


@pytest.mark.parametrize("step", SHARES)
def test_what_no_server_says_changes_nothing_that_is_not_the_vms(
    attack: Attack, step: int, record_property: Callable[[str, object], None]
) -> None:
    before, cases = attack.state(), 0
    for base in BASES[3:]:
        for case, request in attacks(base, step):
            error = refused(attack, request)
            cases += 1
            if error is not None:
                check_line(error, case)
            else:
                attack.take_back(action_from_dict(request))
            assert attack.state() == before, case
    assert cases > 5_000 // step
    record_property(EFFECTLESS, cases)


@pytest.mark.parametrize("epoch", [2**31 - 1, 2**62, 2**63, 10**30])
def test_an_epoch_out_of_reach_does_not_lock_the_site_out(attack: Attack, epoch: int) -> None:
    before = attack.state()
    with pytest.raises(Denied) as caught:
        attack.performer.perform(BASES[0], FencingToken(site="s", epoch=epoch, operation="theirs", attempt=1))
    assert caught.value.code == "agent.epoch_ahead"
    check_line(caught.value, str(epoch))
    attack.do(BASES[0])
    assert attack.state() == before


@pytest.mark.parametrize("base", BASES[:3])
@pytest.mark.parametrize("step", SHARES)
def test_no_definition_takes_what_is_not_the_vms(attack: Attack, base: DefineDomain, step: int) -> None:
    """What is taken is text that reaches nothing, or a device that is still to be made: then the VM does not start."""
    before = attack.state()
    image = attack.storage.image_beneath(MINE, domain_of(MINE).volume)
    own = parts_of(domain_xml(MINE, domain_of(MINE), storage=str(attack.host.paths.storage), image=image))
    for case, request in attacks(base, step):
        error = refused(attack, request)
        if error is not None:
            check_line(error, case)
        elif parts_of(attack.domains_there()[MINE]) not in {own, replace(own, networks=())}:  # it may have no card
            with pytest.raises(Conflict, match="not the VM's"):
                attack.do(StartDomain(vm=MINE))
        attack.do(BASES[0])
        assert attack.state() == before, case
