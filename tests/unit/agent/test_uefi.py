# SPDX-License-Identifier: Apache-2.0
"""Which firmware a host has for VMs, what its GPUs' BARs take, and whose the UEFI variables of a VM are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent.libvirt.domain_devices import parts_of
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import machine
from orchestrator.agent.sysfs.pci import large_bar_bytes
from orchestrator.core.actions.host_actions import DefineDomain, StartDomain, StopDomain, UndefineDomain
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.errors import Conflict, Denied
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.domain import DomainDescription
from tests.unit.agent.bench import L40S, Bench, domain_of

OTHER = "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"
WHOLE = Device(kind="passthrough", gpu=L40S, parent=L40S, type_name="L40S", name=L40S)
PLAIN: dict[str, Any] = {
    "description": "UEFI firmware for x86_64",
    "interface-types": ["uefi"],
    "mapping": {
        "device": "flash",
        "executable": {"filename": "/usr/share/OVMF/OVMF_CODE_4M.fd", "format": "raw"},
        "nvram-template": {"filename": "/usr/share/OVMF/OVMF_VARS_4M.fd", "format": "raw"},
    },
    "targets": [{"architecture": "x86_64", "machines": ["pc-i440fx-*", "pc-q35-*"]}],
    "features": ["acpi-s3", "amd-sev", "verbose-dynamic"],
    "tags": [],
}
"""As Debian's package describes its firmware without Secure Boot."""


def _install(root: Path, described: object, *, name: str = "60-edk2.json", below: str = "usr/share") -> Paths:
    for file in ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"):
        (root / "usr/share/OVMF").mkdir(parents=True, exist_ok=True)
        (root / "usr/share/OVMF" / file).write_bytes(b"")
    directory = root / below / "qemu/firmware"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(described if isinstance(described, str) else json.dumps(described))
    return Paths(root=root, storage=root / "var")


def test_a_host_has_uefi_when_its_firmware_is_described_and_there(tmp_path: Path) -> None:
    assert "uefi" in machine.read_features(_install(tmp_path, PLAIN))


def test_a_host_without_the_package_has_none(tmp_path: Path) -> None:
    assert "uefi" not in machine.read_features(Paths(root=tmp_path, storage=tmp_path / "var"))


@pytest.mark.parametrize(
    "described",
    [
        {**PLAIN, "features": ["secure-boot", "requires-smm"]},
        {**PLAIN, "features": ["requires-smm"]},
        {**PLAIN, "interface-types": ["bios"]},
        {**PLAIN, "targets": [{"architecture": "aarch64", "machines": ["virt-*"]}]},
        {**PLAIN, "targets": [{"architecture": "x86_64", "machines": ["microvm"]}]},
        {**PLAIN, "mapping": {"device": "memory", "filename": "/usr/share/OVMF/OVMF_CODE_4M.fd"}},
        {**PLAIN, "mapping": {**PLAIN["mapping"], "mode": "stateless"}},
        {**PLAIN, "mapping": {**PLAIN["mapping"], "executable": {"filename": "/usr/share/gone.fd"}}},
        {},
        [],
        "",
        "no JSON",
    ],
)
def test_firmware_of_another_kind_or_a_description_that_makes_no_sense_is_none(tmp_path: Path, described: Any) -> None:
    assert "uefi" not in machine.read_features(_install(tmp_path, described))


def test_an_empty_description_of_the_operators_takes_the_packages_away(tmp_path: Path) -> None:
    _install(tmp_path, PLAIN)
    assert "uefi" not in machine.read_features(_install(tmp_path, "", below="etc"))
    assert "uefi" in machine.read_features(_install(tmp_path, PLAIN, below="etc"))


RESOURCE = """\
0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200
0x0000006000000000 0x0000006fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000007000000000 0x0000007001ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000000000000e000 0x000000000000e07f 0x0000000000040101
0x00000000f7000000 0x00000000f707ffff 0x0000000000046200
0x0000008000000000 0x0000009fffffffff 0x000000000014220c
"""
"""An L40S's: 64 GiB and 32 MiB that may lie above 4 GiB, a ROM, and what its virtual functions have."""


def test_the_64_bit_bars_of_a_gpu_are_counted_and_not_its_rom_or_its_virtual_functions(tmp_path: Path) -> None:
    paths = Paths(root=tmp_path, storage=tmp_path / "var")
    directory = paths.pci(L40S)
    directory.mkdir(parents=True)
    (directory / "resource").write_text(RESOURCE)
    assert large_bar_bytes(paths, L40S) == 64 * 2**30 + 32 * 2**20
    (directory / "resource").write_text("rubbish\n0x1 0x2\n")
    assert large_bar_bytes(paths, L40S) == 0
    assert large_bar_bytes(paths, "0000:99:00.0") == 0


@pytest.fixture
def bench(furnished: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """libvirt's test driver takes no word of variables when a domain is undefined; the one for QEMU does as here."""
    undefine = libvirt.virDomain.undefineFlags

    def with_variables(domain: Any, flags: int) -> Any:
        if flags & libvirt.VIR_DOMAIN_UNDEFINE_NVRAM:
            (furnished.host.paths.nvram / f"{domain.UUIDString()}.fd").unlink(missing_ok=True)
        return undefine(domain, flags & ~(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM))

    monkeypatch.setattr(libvirt.virDomain, "undefineFlags", with_variables)
    return furnished


def _by_uefi(bench: Bench, *devices: Device) -> DomainDescription:
    return replace(domain_of(bench.vm, *devices), firmware="uefi")


def _file(bench: Bench) -> Path:
    return bench.host.paths.nvram / f"{bench.vm}.fd"


def test_variables_are_the_vms_own_from_its_definition_to_its_end(bench: Bench) -> None:
    key = f"nvram:{bench.vm}.fd"
    bench.do(DefineDomain(vm=bench.vm, domain=_by_uefi(bench)))
    assert bench.ledger.owner(key) is not None
    bench.do(StartDomain(vm=bench.vm))
    _file(bench).write_bytes(b"boot order")  # as libvirt makes it
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))
    assert _file(bench).read_bytes() == b"boot order"
    assert not bench.do(DefineDomain(vm=bench.vm, domain=_by_uefi(bench))).changed
    bench.do(UndefineDomain(vm=bench.vm))
    assert not _file(bench).exists()
    assert bench.ledger.owner(key) is None
    bench.do(UndefineDomain(vm=bench.vm))


def test_variables_that_libvirt_left_behind_go_when_the_definition_is_removed_again(bench: Bench) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=_by_uefi(bench)))
    _file(bench).write_bytes(b"x")
    bench.libvirt.lookupByUUIDString(bench.vm).undefine()
    bench.do(UndefineDomain(vm=bench.vm))
    assert not _file(bench).exists()


def test_a_definition_that_is_refused_leaves_no_owner_of_variables(bench: Bench) -> None:
    with pytest.raises(Conflict):
        bench.do(DefineDomain(vm=bench.vm, domain=replace(_by_uefi(bench), volume=f"{OTHER}.qcow2")))
    assert bench.ledger.owner(f"nvram:{bench.vm}.fd") is None


def test_variables_that_became_a_link_or_another_vms_are_not_taken(bench: Bench, tmp_path: Path) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=_by_uefi(bench)))
    _file(bench).symlink_to(tmp_path / "elsewhere")
    for action in (DefineDomain(vm=bench.vm, domain=_by_uefi(bench)), StartDomain(vm=bench.vm)):
        with pytest.raises(Conflict) as refused:
            bench.do(action)
        assert refused.value.code == "vm.file_foreign"
    _file(bench).unlink()
    bench.ledger.release(f"nvram:{bench.vm}.fd")
    bench.ledger.claim(f"nvram:{bench.vm}.fd", OTHER)
    with pytest.raises(Conflict) as refused:
        bench.do(StartDomain(vm=bench.vm))
    assert refused.value.code == "vm.file_foreign"


def test_a_definition_says_how_much_the_bars_of_its_whole_gpus_need(bench: Bench) -> None:
    (bench.host.paths.pci(L40S) / "resource").write_text(RESOURCE)
    bench.do(DefineDomain(vm=bench.vm, domain=_by_uefi(bench, WHOLE)))
    # libvirt's test driver keeps no arguments of QEMU: what was written is in the digest of the ledger alone
    before = bench.ledger.owner(f"domain:{bench.vm}")
    (bench.host.paths.pci(L40S) / "resource").write_text("")
    bench.do(DefineDomain(vm=bench.vm, domain=_by_uefi(bench, WHOLE)))
    after = bench.ledger.owner(f"domain:{bench.vm}")
    assert before is not None
    assert after is not None
    assert before.detail != after.detail


def _text(**more: Any) -> str:
    domain = replace(domain_of(OTHER, WHOLE), firmware="uefi")
    return domain_xml(OTHER, domain, **more)


def test_what_we_write_for_uefi_and_large_bars_is_nothing_of_others() -> None:
    parts = parts_of(_text(bar_window_mib=524288))
    assert parts.others == ()
    assert f"/var/lib/vgpuctl-agent/nvram/{OTHER}.fd" in parts.files


LOADER = "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>"


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ("<nvram>", f"{LOADER}<nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>", None),
        ("<nvram>", LOADER.replace("/usr/share/OVMF", "/tmp") + "<nvram>", "os/loader"),
        ("<nvram>", LOADER.replace("readonly='yes'", "readonly='no'") + "<nvram>", "os/loader"),
        ("<nvram>", "<nvram template='/tmp/mine.fd'>", "os/nvram"),
        ("<nvram>", "<nvram type='network'>", "os/nvram"),
        ('value="-fw_cfg"', 'value="-drive"', "{http://libvirt.org/schemas/domain/qemu/1.0}commandline"),
        ("string=524288", "file=/etc/shadow", "{http://libvirt.org/schemas/domain/qemu/1.0}commandline"),
        ("string=524288", "string=524288,file=/etc/shadow", "{http://libvirt.org/schemas/domain/qemu/1.0}commandline"),
        ("</qemu:commandline>", '<qemu:env name="A" value="b" /></qemu:commandline>',
         "{http://libvirt.org/schemas/domain/qemu/1.0}commandline"),
    ],
)  # fmt: skip
def test_firmware_and_arguments_that_we_did_not_write_are_told(old: str, new: str, other: str | None) -> None:
    text = _text(bar_window_mib=524288)
    assert old in text
    assert parts_of(text.replace(old, new, 1)).others == (() if other is None else (other,))


def test_variables_elsewhere_are_not_the_vms(bench: Bench) -> None:
    bench.do(DefineDomain(vm=bench.vm, domain=_by_uefi(bench)))
    domain = bench.libvirt.lookupByUUIDString(bench.vm)
    xml = domain.XMLDesc().replace(str(_file(bench)), "/etc/shadow")
    bench.libvirt.defineXML(xml)
    with pytest.raises((Conflict, Denied)) as refused:
        bench.do(StartDomain(vm=bench.vm))
    assert refused.value.code == "vm.file_foreign"
