# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from tests.lab.conftest import PAIR, LabHost, lab, listed

pytestmark = [pytest.mark.lab, pytest.mark.soak]


def boot_id(host: LabHost) -> str:
    return host.run("cat /proc/sys/kernel/random/boot_id").strip()


def test_status_tells_what_a_client_needs_to_reach_a_host(pair: dict[str, LabHost]) -> None:
    for host in pair.values():
        key = host.known_host_line.split()[2]
        digest = hashlib.sha256(base64.b64decode(key)).digest()
        assert host.host_key_fingerprint == "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
        assert host.state == "running"
        assert Path(host.key_file).stat().st_mode & 0o777 == 0o600
        assert Path(host.console_log).exists()


def test_up_again_leaves_running_hosts_alone(pair: dict[str, LabHost]) -> None:
    boots = {name: boot_id(host) for name, host in pair.items()}
    lab("up", *(word for name in PAIR for word in ("--scenario", f"lab/scenarios/{name}.yaml")))
    assert {name: listed()[name] for name in PAIR} == pair
    assert {name: boot_id(host) for name, host in pair.items()} == boots


def test_hosts_reach_each_other_by_name_on_their_private_network(t4: LabHost, l40s: LabHost) -> None:
    t4.run("ping -c 2 -W 5 l40s")
    l40s.run("ping -c 2 -W 5 t4")


def test_a_host_reaches_nothing_outside_the_lab(t4: LabHost) -> None:
    assert t4.run("ping -c 1 -W 2 1.1.1.1 >/dev/null 2>&1 || echo shut").strip() == "shut"


GPUS = [("t4", "10de:1eb8", 2, 0), ("l40s", "10de:26b9", 2, 32)]


@pytest.mark.parametrize(("name", "ids", "count", "vfs"), GPUS, ids=[name for name, *_ in GPUS])
def test_a_host_shows_the_gpus_of_its_scenario(
    pair: dict[str, LabHost], name: str, ids: str, count: int, vfs: int
) -> None:
    host = pair[name]
    functions = [
        line.split()[0] for line in host.run(f"lspci -D -d {ids}").splitlines() if line.split()[0].endswith("00.0")
    ]
    assert len(functions) == count
    for function in functions:
        file = f"/sys/bus/pci/devices/{function}/sriov_totalvfs"
        assert int(host.run(f"cat {file} 2>/dev/null || echo 0")) == vfs
    assert len(host.run("nvidia-smi -L").splitlines()) == count


def test_a_reboot_is_real_and_keeps_the_host_key(t4: LabHost) -> None:
    uuid = "5a0f6ef5-9a0b-4a53-8ef0-6f8a6fd7a001"
    types = "/sys/class/mdev_bus/*/mdev_supported_types"
    t4.run(f'echo {uuid} > "$(dirname "$(grep -lx "GRID T4-1Q" {types}/*/name | tail -n 1)")/create"')
    before = boot_id(t4)
    lab("reboot", "t4")
    assert boot_id(t4) != before
    assert t4.run("ls /sys/bus/mdev/devices") == ""
    assert listed()["t4"] == t4


GUEST = """\
set -e
cd /var/lib/libvirt/images
mkdir lab-seed
printf 'instance-id: lab\\nlocal-hostname: labguest\\n' > lab-seed/meta-data
printf '#cloud-config\\nssh_authorized_keys: [%s]\\n' "$(cat /root/lab-guest.pub)" > lab-seed/user-data
xorriso -as mkisofs -quiet -V cidata -J -r -o lab-seed.iso lab-seed 2>/dev/null
virsh -q define /dev/stdin <<X
<domain type='kvm'><name>labguest</name><memory unit='MiB'>192</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os><features><acpi/><smm state='off'/></features>
<cpu mode='host-passthrough'/><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='$PWD/lab-guest.qcow2'/>
<target dev='vda' bus='virtio'/></disk>
<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='$PWD/lab-seed.iso'/>
<target dev='sda' bus='sata'/><readonly/></disk>
<interface type='network'><source network='default'/><model type='virtio'/></interface>
<serial type='pty'><log file='/var/log/libvirt/qemu/labguest-serial.log' append='off'/><target port='0'/></serial>
<controller type='usb' model='none'/><memballoon model='none'/></devices></domain>
X
virsh -q start labguest
"""
UNTIL_OFF = "for n in $(seq 60); do virsh -q domstate labguest | grep -q shut && exit 0; sleep 0.5; done; exit 1"
CLEAN = (
    "virsh -q destroy labguest 2>/dev/null; virsh -q undefine labguest; "
    "rm -rf /var/lib/libvirt/images/lab-* /root/lab-guest*"
)
CONSOLE = "/var/log/libvirt/qemu/labguest-serial.log"


def test_the_guest_image_boots_from_its_disk_and_takes_its_seed(t4: LabHost) -> None:
    image = Path(lab("guest-image").strip())
    assert image.stat().st_size <= 40 << 20
    t4.send(image, "/var/lib/libvirt/images/lab-guest.qcow2")
    t4.run("ssh-keygen -q -t ed25519 -N '' -f /root/lab-guest <<< y >/dev/null")
    try:
        t4.run(GUEST)
        t4.run(f"for n in $(seq 240); do grep -q 'vgpu-guest ready' {CONSOLE} && exit 0; sleep 0.5; done; exit 1")
        console = t4.run(f"cat {CONSOLE}")
        address = console.split("vgpu-guest labguest address ")[1].split("/")[0]
        assert "[1af4:1041]" in console
        options = "-i /root/lab-guest -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        assert t4.run(f"ssh -q {options} root@{address} hostname").strip() == "labguest"
        t4.run(f"virsh -q shutdown labguest; {UNTIL_OFF}")
    finally:
        t4.run(CLEAN)
