# SPDX-License-Identifier: Apache-2.0
"""A VM made by virt-install, which can make neither a vGPU nor an overlay: it gets both made for it and does the rest
from here, as ``create-vm`` does."""

from __future__ import annotations

import re
import subprocess
import time

from tests.bench.create_vm.by_hand import device_by_hand, function_of, mdev_of, ready
from tests.lab.enrolled import Enrolled

_PREPARE = """
set -eu
qemu-img create -q -f qcow2 -b {base} -F qcow2 /var/lib/vgpuctl-agent/volumes/{name}.qcow2 268435456
{make}
"""
_UNTIL_ADDRESS = """
tries=0
until virsh -q domifaddr {name} | grep -q ipv4; do tries=$((tries + 1)); [ $tries -lt 240 ]; sleep 1; done
"""
_CLEAR = """
virsh -q destroy {name}; virsh -q undefine {name}
{remove}
rm -f /var/lib/vgpuctl-agent/volumes/{name}.qcow2 /var/lib/vgpuctl-agent/seeds/{name}.iso
"""


def virt_install_seconds(enrolled: Enrolled, xml: str, seed: str) -> float:
    """``xml``, ``seed``: of a VM that the product has made. :returns: until the guest has an address"""
    name, base = ready(enrolled, seed)
    device = device_by_hand(enrolled, xml)
    start = time.monotonic()
    enrolled.shell(_PREPARE.format(base=base, name=name, make=device.make))
    done = subprocess.run(_command(enrolled, name, device.xml), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    enrolled.shell(_UNTIL_ADDRESS.format(name=name))
    seconds = time.monotonic() - start
    enrolled.shell(_CLEAR.format(name=name, remove=device.remove))
    return seconds


def _command(enrolled: Enrolled, name: str, xml: str) -> list[str]:
    host, below = enrolled.host, "/var/lib/vgpuctl-agent"
    reach = f"{host.user}@{host.address}:{host.port}/system?keyfile={host.key_file}&no_verify=1"
    network = re.findall(r"<source network='([^']+)'", xml)[0]
    return [
        "virt-install", "--connect", f"qemu+ssh://{reach}", "--name", name, "--memory", "192", "--vcpus", "1",
        "--machine", "q35", "--virt-type", "kvm", "--cpu", "host-passthrough", "--import", "--noautoconsole",
        "--osinfo", "detect=off,require=off", "--network", f"network={network},model=virtio", "--graphics", "none",
        "--disk", f"path={below}/volumes/{name}.qcow2,format=qcow2,bus=virtio",
        "--disk", f"path={below}/seeds/{name}.iso,device=cdrom,bus=sata",
        "--hostdev", *_device(enrolled, xml),
    ]  # fmt: skip


def _device(enrolled: Enrolled, xml: str) -> tuple[str, ...]:
    if enrolled.kind.attachment == "mdev":  # libvirt's name: virt-install takes no bare uuid
        return (re.sub(r"\W", "_", f"mdev_{mdev_of(xml)}_{enrolled.gpu}"),)
    # a function of vendor-specific VFIO keeps NVIDIA's driver: libvirt must not manage it
    return function_of(xml), "--xml", "./devices/hostdev/@managed=no"
