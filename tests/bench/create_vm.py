# SPDX-License-Identifier: Apache-2.0
"""How long ``create-vm`` takes against the same VM made by raw commands on the host, in one run, interleaved.

The raw side is what an operator would type: qemu-img, a sysfs write, virsh define and start, then waiting for the
guest's DHCP lease; it is timed on the host itself, so it pays for no ssh connection. The lease is asked for once a
second: asked more often, virsh itself would take the emulated processor from the guest. virt-install can make no vGPU
and no overlay, so it gets both made for it and does the rest from here, as ``create-vm`` does.
``python -m tests.bench.create_vm``
writes build/bench/create_vm.json.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.conftest import SCENARIOS, lab, listed
from tests.lab.enrolled import MDEV, VENDOR_VFIO, Enrolled, Kind, enrol

ROUNDS = 5
REPORT = Path("build/bench/create_vm.json")
Row = dict[str, object]

_RAW = """
set -eu
start=$(date +%s.%N)
qemu-img create -q -f qcow2 -b {base} -F qcow2 /var/lib/vgpuctl-agent/volumes/{name}.qcow2 268435456
{make_vgpu}
virsh -q define /dev/stdin <<'XML'
{xml}
XML
virsh -q start {uuid}
tries=0
until virsh -q domifaddr {uuid} | grep -q ipv4; do
  tries=$((tries + 1)); [ $tries -lt 240 ]; sleep 1
done
end=$(date +%s.%N)
virsh -q destroy {uuid}
virsh -q undefine {uuid}
{remove_vgpu}
rm -f /var/lib/vgpuctl-agent/volumes/{name}.qcow2 /var/lib/vgpuctl-agent/seeds/{name}.iso
echo "$start $end"
"""


_PREPARE = """
set -eu
qemu-img create -q -f qcow2 -b {base} -F qcow2 /var/lib/vgpuctl-agent/volumes/{name}.qcow2 268435456
{make_vgpu}
"""
_UNTIL_ADDRESS = """
tries=0
until virsh -q domifaddr {name} | grep -q ipv4; do tries=$((tries + 1)); [ $tries -lt 240 ]; sleep 1; done
"""
_CLEAR = """
virsh -q destroy {name}; virsh -q undefine {name}
{remove_vgpu}
rm -f /var/lib/vgpuctl-agent/volumes/{name}.qcow2 /var/lib/vgpuctl-agent/seeds/{name}.iso
"""


def _template(enrolled: Enrolled) -> tuple[str, str, str]:
    """Domain XML, VM id and device of a VM that the product made: the raw side makes the very same."""
    enrolled.product.ok(*enrolled.request("model"))
    vm = enrolled.product.json("show-vm", "model")
    xml = enrolled.shell(f"virsh dumpxml --inactive {vm['id']}")
    seed = enrolled.shell(f"base64 -w0 /var/lib/vgpuctl-agent/seeds/{vm['id']}.iso")
    enrolled.product.ok("delete-vm", "model")
    return xml, str(vm["id"]), seed


def _ready(enrolled: Enrolled, seed: str) -> tuple[str, str]:
    """A new VM's name, with its seed on the host, and the path of the base image."""
    name = str(uuid.uuid4())
    enrolled.shell(f"echo {seed} | base64 -d > /var/lib/vgpuctl-agent/seeds/{name}.iso")
    return name, enrolled.shell("ls /var/lib/vgpuctl-agent/images/*.qcow2").split()[0]


def _raw_seconds(enrolled: Enrolled, xml: str, model: str, seed: str) -> float:
    name, base = _ready(enrolled, seed)
    device = str(uuid.uuid4())
    make, remove = enrolled.raw_vgpu(device)
    xml = xml.replace(model, name).replace("default.model", f"raw.{name}")
    xml = re.sub(r"(<source>\s*<address uuid=')[0-9a-f-]{36}", rf"\g<1>{device}", xml)
    # the lease of an address that was seen before is there at once, long before the guest
    xml = re.sub(r"(<mac address='52:54:00:)[0-9a-f:]{8}", rf"\g<1>{name[0:2]}:{name[2:4]}:{name[4:6]}", xml)
    answer = enrolled.shell(_RAW.format(base=base, name=name, uuid=name, xml=xml, make_vgpu=make, remove_vgpu=remove))
    start, end = answer.split()[-2:]
    return float(end) - float(start)


def _virt_install_seconds(enrolled: Enrolled, xml: str, seed: str) -> float:
    name, base = _ready(enrolled, seed)
    device = str(uuid.uuid4())
    make, remove = enrolled.raw_vgpu(device)
    start = time.monotonic()
    enrolled.shell(_PREPARE.format(base=base, name=name, make_vgpu=make))
    done = subprocess.run(_virt_install(enrolled, name, device, xml), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    enrolled.shell(_UNTIL_ADDRESS.format(name=name))
    seconds = time.monotonic() - start
    enrolled.shell(_CLEAR.format(name=name, remove_vgpu=remove))
    return seconds


def _virt_install(enrolled: Enrolled, name: str, device: str, xml: str) -> list[str]:
    host, below = enrolled.host, "/var/lib/vgpuctl-agent"
    reach = f"{host.user}@{host.address}:{host.port}/system?keyfile={host.key_file}&no_verify=1"
    network = re.findall(r"<source network='([^']+)'", xml)[0]
    node = re.sub(r"\W", "_", f"mdev_{device}_{enrolled.gpu}")  # libvirt's name: virt-install takes no bare uuid
    # a function of vendor-specific VFIO keeps NVIDIA's driver: libvirt must not manage it
    device_words = (
        (node,) if enrolled.kind is MDEV else (f"{enrolled.gpu[:-1]}1", "--xml", "./devices/hostdev/@managed=no")
    )
    return [
        "virt-install", "--connect", f"qemu+ssh://{reach}", "--name", name, "--memory", "192", "--vcpus", "1",
        "--machine", "q35", "--virt-type", "kvm", "--cpu", "host-passthrough", "--import", "--noautoconsole",
        "--osinfo", "detect=off,require=off", "--network", f"network={network},model=virtio", "--graphics", "none",
        "--disk", f"path={below}/volumes/{name}.qcow2,format=qcow2,bus=virtio",
        "--disk", f"path={below}/seeds/{name}.iso,device=cdrom,bus=sata",
        "--hostdev", *device_words,
    ]  # fmt: skip


def _product_seconds(enrolled: Enrolled) -> float:
    start = time.monotonic()
    enrolled.product.ok(*enrolled.request("timed"))
    seconds = time.monotonic() - start
    enrolled.product.ok("delete-vm", "timed")
    return seconds


def _measure(enrolled: Enrolled, case: str, show: Callable[[str], None]) -> list[Row]:
    xml, model, seed = _template(enrolled)
    ours: list[float] = []
    raw: list[float] = []
    installed: list[float] = []
    for round_number in range(ROUNDS):
        raw.append(_raw_seconds(enrolled, xml, model, seed))
        ours.append(_product_seconds(enrolled))
        installed.append(_virt_install_seconds(enrolled, xml, seed))
        show(
            f"{case} round {round_number + 1}: raw {raw[-1]:.2f} s, create-vm {ours[-1]:.2f} s, "
            f"virt-install {installed[-1]:.2f} s"
        )
    values = {
        "seconds": statistics.median(ours),
        "raw_seconds": statistics.median(raw),
        "ratio_to_raw": statistics.median(ours) / statistics.median(raw),
        "virt_install_seconds": statistics.median(installed),
    }
    return [
        {"suite": "create_vm", "case": case, "policy": "vgpuctl", "metric": metric, "value": round(value, 3)}
        for metric, value in values.items()
    ]


def _measured(kind: Kind) -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as state,  # a run that was interrupted leaves nothing in the next one's way
        enrol(kind, listed()[kind.scenario], Path(state)) as enrolled,
    ):
        return _measure(enrolled, kind.attachment, lambda line: print(line, flush=True))


def main() -> int:
    """Both hosts at once: an emulated one has a processor of its own, and only what is measured on it is compared."""
    lab("up", *(word for scenario in SCENARIOS for word in ("--scenario", scenario)))
    with ThreadPoolExecutor(2) as pool:
        rows = [row for kind_rows in pool.map(_measured, (MDEV, VENDOR_VFIO)) for row in kind_rows]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(rows, indent=2) + "\n")
    for row in rows:
        print(f"{row['case']:<14}{row['metric']:<22}{row['value']:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
