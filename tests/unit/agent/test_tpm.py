# SPDX-License-Identifier: Apache-2.0
"""A VM's TPM: which hosts can give one, which a definition may have, and when libvirt wipes its state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent.libvirt.domain_devices import parts_of
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import machine
from orchestrator.core.actions.host_actions import DefineDomain, StartDomain, UndefineDomain
from orchestrator.core.errors import Fatal
from tests.unit.agent.bench import MDEV, MDEV_SOURCE, T4, Bench, domain_of

SWTPM = ("swtpm", "swtpm_setup", "swtpm_ioctl")
OF_TPMS = libvirt.VIR_DOMAIN_UNDEFINE_TPM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


def _install(root: Path, *names: str) -> Paths:
    for name in names:
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (root / "usr/bin" / name).write_text("#!/bin/sh\n")
        (root / "usr/bin" / name).chmod(0o755)
    return Paths(root=root, storage=root / "var")


def test_a_host_gives_tpms_when_it_has_all_three_programs(tmp_path: Path) -> None:
    assert "tpm" not in machine.read_features(_install(tmp_path, *SWTPM[:2]))
    assert "tpm" in machine.read_features(_install(tmp_path, *SWTPM))
    (tmp_path / "usr/bin/swtpm").chmod(0o644)
    assert "tpm" not in machine.read_features(_install(tmp_path))


@pytest.mark.parametrize(
    "backend",
    [
        "<backend type='passthrough'><device path='/dev/tpm0'/></backend>",
        "<backend type='external'><source type='unix' mode='connect' path='/run/x'/></backend>",
        "<backend type='emulator' version='2.0'><source type='dir' path='/var/lib/other'/></backend>",
        "<backend type='emulator' version='2.0'><encryption secret='6dd3e4a5-1d76-44ce-961f-f119f5aad935'/></backend>",
        "",
    ],
)
def test_no_definition_of_ours_reaches_a_tpm_elsewhere(backend: str) -> None:
    text = "<domain><uuid>x</uuid><devices><tpm model='tpm-tis'>{}</tpm></devices></domain>"
    assert parts_of(text.format(backend)).others == ("tpm of another kind",)
    assert parts_of(text.format("<backend type='emulator' version='2.0'/>")).others == ()


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Those that domains are undefined with; libvirt's test driver knows none of a TPM."""
    undefine, seen = libvirt.virDomain.undefineFlags, list[int]()

    def noted(domain: Any, given: int) -> Any:
        seen.append(given)
        return undefine(domain, given & ~OF_TPMS)

    monkeypatch.setattr(libvirt.virDomain, "undefineFlags", noted)
    return seen


def test_the_tpm_of_a_vm_of_ours_is_wiped_with_its_definition(furnished: Bench, flags: list[int]) -> None:
    domain = replace(domain_of(furnished.vm), tpm=True)
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain))
    assert not furnished.do(DefineDomain(vm=furnished.vm, domain=domain)).changed
    furnished.do(StartDomain(vm=furnished.vm))
    furnished.libvirt.lookupByUUIDString(furnished.vm).destroy()
    furnished.do(UndefineDomain(vm=furnished.vm))
    assert not flags[-1] & libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM


def _adopted(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    bench.define(MDEV_SOURCE, more=TPM)
    bench.do(bench.adopt_mdev())
    bench.libvirt.lookupByUUIDString(bench.vm).destroy()


def test_the_tpm_of_an_adopted_vm_stays(bare: Bench, flags: list[int]) -> None:
    _adopted(bare)
    bare.do(UndefineDomain(vm=bare.vm))
    assert flags[-1] & libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM


def test_a_libvirt_that_cannot_keep_the_tpm_of_an_adopted_vm_undefines_nothing(
    bare: Bench, flags: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _adopted(bare)
    monkeypatch.delattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM")
    with pytest.raises(Fatal, match="would wipe the TPM"):
        bare.do(UndefineDomain(vm=bare.vm))
    assert flags == []
