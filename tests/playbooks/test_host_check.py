# SPDX-License-Identifier: Apache-2.0
"""The look at a host with the real Ansible: this machine, or a directory that has a host's files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.ansible.configurator import facts_of
from orchestrator.adapters.ansible.connection import GROUP, environment
from orchestrator.adapters.ansible.outcome import error_of
from orchestrator.adapters.ansible.play import Play, run_play
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import machine
from orchestrator.core.errors import Unknown
from orchestrator.core.hosts.readiness import HostReadinessFacts, requirements
from tests.playbooks.local_runs import ROOT


def _looked(scratch: Path, playbook: Path) -> HostReadinessFacts:
    scratch.mkdir()
    reach = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    report = run_play(
        Play(
            playbook=playbook,
            inventory={GROUP: {"hosts": {"gpu-1": {**reach, "vgpuctl_host_check_python": sys.executable}}}},
            environment={
                **environment(scratch, ROOT / "playbooks/ansible.cfg"),
                "ANSIBLE_LIBRARY": str(ROOT / "playbooks/roles/vgpuctl_host_check/library"),
            },
            scratch=scratch,
            timeout_s=120,
            confined=False,
        ),
        lambda _title: None,
    )
    assert error_of(report, "gpu-1") is None, report.output
    assert "changed=0" in report.output or "ok=1" in report.output
    return facts_of(report.returned["readiness"], "gpu-1")


def test_this_machine_is_read_by_the_playbook(tmp_path: Path) -> None:
    facts = _looked(tmp_path / "s", ROOT / "playbooks/check-host.yml")
    assert facts.kernel
    assert facts.python[:2] == sys.version_info[:2]
    assert {one.name for one in requirements(facts)} >= {"IOMMU", "driver", "disk"}


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _looked_below(root: Path, tmp_path: Path) -> HostReadinessFacts:
    play = tmp_path / "look.yml"
    play.write_text(
        "- hosts: vgpuctl_hosts\n  gather_facts: false\n  tasks:\n"
        f"    - host_readiness: {{python: {sys.executable}, storage: /var/x, root: {root}}}\n"
    )
    return _looked(tmp_path / "s", play)


def test_what_a_hosts_files_say_is_what_is_told(tmp_path: Path) -> None:
    root, gpu = tmp_path / "root", "sys/bus/pci/devices/0000:41:00.0"
    _write(root, {
        "etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n',
        "proc/cmdline": "root=/dev/sda1 quiet\n", "proc/cpuinfo": "vendor_id : AuthenticAMD\n",
        "sys/kernel/iommu_groups/0/x": "", "sys/module/nouveau/x": "", "sys/module/nvidia/version": "580.65.05\n",
        "sys/firmware/efi/efivars/SecureBoot-8be4df61": "\x06\x00\x00\x00\x01",
        "sys/module/apparmor/parameters/enabled": "Y\n",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "8\n",
        "proc/mounts": "hugetlbfs /dev/hugepages hugetlbfs rw,pagesize=2M 0 0\n"
        "hugetlbfs /p hugetlbfs rw,pagesize=1024M 0 0\n",
        "run/libvirt/libvirt-sock": "", "dev/kvm": "",
        "usr/share/qemu/firmware/60.json": '{"interface-types": ["uefi"], "features": [], "targets": '
                                           '[{"architecture": "x86_64", "machines": ["pc-q35-*"]}]}',
        "usr/share/qemu/firmware/50.json": "no JSON",
        f"{gpu}/vendor": "0x10de\n", f"{gpu}/class": "0x030200\n", f"{gpu}/virtfn0/nvidia/current_vgpu_type": "0\n",
        "sys/bus/pci/devices/0000:42:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:42:00.0/class": "0x068000\n",
    })  # fmt: skip
    facts = _looked_below(root, tmp_path)
    assert (facts.os, facts.amd, facts.iommu_groups) == ("Debian GNU/Linux 13 (trixie)", True, 1)
    assert (facts.modules, facts.driver, facts.secure_boot) == (("nouveau", "nvidia"), "580.65.05", True)
    assert (facts.confinement, facts.features) == ("AppArmor", ("uefi",))
    assert (facts.huge_pages_1g, facts.huge_pages_2m, facts.large_pages_mounted, facts.nvswitches) == (8, 0, True, True)
    assert [(one.address, one.takes_types) for one in facts.gpus] == [("0000:41:00.0", True)]
    assert facts.storage_free_bytes > 0


@pytest.mark.parametrize(("mode", "gives"), [(0o755, True), (0o644, False)])
def test_a_tpm_is_found_where_the_agent_finds_it(tmp_path: Path, mode: int, gives: bool) -> None:
    root = tmp_path / "root"
    names = [f"usr/local/bin/{name}" for name in ("swtpm", "swtpm_setup", "swtpm_ioctl")]
    _write(root, dict.fromkeys(names, ""))
    for name in names:
        (root / name).chmod(mode)
    agents = machine.read_features(Paths(root=root, storage=tmp_path / "var"))
    assert ("tpm" in _looked_below(root, tmp_path).features, "tpm" in agents) == (gives, gives)


@pytest.mark.parametrize(("model", "switches"), [("SMDL=SW_MNG", True), ("MCX75310AAS-NEAT", False)])
def test_switches_that_no_pci_device_is_are_known_by_the_card_that_manages_them(
    model: str, switches: bool, tmp_path: Path
) -> None:
    root, card = tmp_path / "root", "sys/bus/pci/devices/0000:05:00.0"
    _write(root, {f"{card}/vendor": "0x15b3\n", f"{card}/class": "0x020700\n"})
    (root / card / "vpd").write_bytes(b"\x82\x20\x00ConnectX-7\x90\xff\x00" + model.encode() + b"\xfa\x78")
    facts = _looked_below(root, tmp_path)
    assert (facts.nvswitches, facts.switches_lack) == (switches, ("nvlsm", "ib_umad") if switches else ())
    _write(root, {"opt/nvidia/nvlsm/sbin/nvlsm": "", "sys/module/ib_umad/x": ""})
    again = tmp_path / "again"
    again.mkdir()
    assert _looked_below(root, again).switches_lack == ()


@pytest.mark.parametrize("returned", [None, {}, "text", {"os": 1}, {"gpus": "x" * 10}])
def test_an_answer_of_another_shape_is_believed_by_nobody(returned: Any) -> None:
    with pytest.raises(Unknown) as caught:
        facts_of(returned, "gpu-1")
    assert caught.value.code == "host.check_failed"
