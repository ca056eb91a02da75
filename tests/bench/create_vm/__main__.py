# SPDX-License-Identifier: Apache-2.0
"""How long ``create-vm`` takes against the same VM made by raw commands on the host, in one run, interleaved.

The raw side is what an operator would type: qemu-img, the device, virsh define and start, then waiting for the
guest's DHCP lease; it is timed on the host itself, so it pays for no ssh connection. The lease is asked for once a
second: asked more often, virsh itself would take the emulated processor from the guest. ``started``: until the domain
runs, so that the guest's boot hides nothing.
``python -m tests.bench.create_vm [--case CASE CASE ...]`` writes build/bench/create_vm.json; cases not run keep their
rows.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tests.bench.create_vm.by_hand import device_by_hand, prepare, ready
from tests.bench.create_vm.virt_install import virt_install_seconds
from tests.bench.placement.rows import Row, keep, read, rows_of, table
from tests.lab.conftest import of_scenario
from tests.lab.enrolled import MDEV, MIG_BACKED, VENDOR_VFIO, WHOLE, Enrolled, Kind, enrol

ROUNDS = 3
REPORT = Path("build/bench/create_vm.json")
KINDS = (MDEV, VENDOR_VFIO, replace(MIG_BACKED, smallest=False), replace(WHOLE, smallest=False))
"""One lab host after the other: two would take the processors from each other, and from the server, as it happens.
Their guests take an address."""
INSTALLED = frozenset({"mdev", "vendor_vfio"})
"""Cases that virt-install is measured in."""

_RAW = """
set -eu
start=$(date +%s.%N)
qemu-img create -q -f qcow2 -b {base} -F qcow2 /var/lib/vgpuctl-agent/volumes/{name}.qcow2 268435456
{make}
virsh -q define /dev/stdin <<'XML'
{xml}
XML
virsh -q start {name}
started=$(date +%s.%N)
tries=0
until virsh -q domifaddr {name} | grep -q ipv4; do
  tries=$((tries + 1)); [ $tries -lt 240 ]; sleep 1
done
end=$(date +%s.%N)
virsh -q destroy {name}
virsh -q undefine {name}
{remove}
rm -f /var/lib/vgpuctl-agent/volumes/{name}.qcow2 /var/lib/vgpuctl-agent/seeds/{name}.iso
echo "$start $started $end"
"""


@dataclass(frozen=True)
class Took:
    """Seconds."""

    started: float
    """Until the domain ran."""
    seen: float
    """Until the guest had an address."""


def _template(enrolled: Enrolled) -> tuple[str, str, str]:
    """Domain XML, VM id and seed of a VM that the product made: the raw side makes the very same."""
    enrolled.product.ok(*enrolled.request("model"))
    vm = enrolled.product.json("show-vm", "model")
    xml = enrolled.shell(f"virsh dumpxml --inactive {vm['id']}")
    seed = enrolled.shell(f"base64 -w0 /var/lib/vgpuctl-agent/seeds/{vm['id']}.iso")
    enrolled.product.ok("delete-vm", "model")
    return xml, str(vm["id"]), seed


def _raw(enrolled: Enrolled, xml: str, model: str, seed: str) -> Took:
    name, base = ready(enrolled, seed)
    device = device_by_hand(enrolled, xml.replace(model, name).replace("default.model", f"raw.{name}"))
    # the lease of an address that was seen before is there at once, long before the guest
    own = re.sub(r"(<mac address='52:54:00:)[0-9a-f:]{8}", rf"\g<1>{name[0:2]}:{name[2:4]}:{name[4:6]}", device.xml)
    answer = enrolled.shell(_RAW.format(base=base, name=name, xml=own, make=device.make, remove=device.remove))
    start, started, end = (float(word) for word in answer.split()[-3:])
    return Took(started - start, end - start)


def _product(enrolled: Enrolled) -> Took:
    enrolled.product.run("doctor")  # what was made by hand is seen to be gone: beside it a GPU is not cut
    began = time.time()
    enrolled.product.ok(*enrolled.request("timed"))
    seen = time.time() - began
    made = enrolled.product.json("operation", "list", "--about", "default/timed", "--kind", "create_vm")[0]
    steps = {str(step["name"]).partition(".")[0]: step for step in made["steps"]}
    started = datetime.fromisoformat(steps["start"]["finished_at"]).timestamp() - began
    enrolled.product.ok("delete-vm", "timed")
    return Took(started, seen)


def _measure(enrolled: Enrolled) -> list[Row]:
    case = enrolled.kind.attachment
    prepare(enrolled)
    xml, model, seed = _template(enrolled)
    ours: list[Took] = []
    raw: list[Took] = []
    installed: list[float] = []
    for number in range(1, ROUNDS + 1):
        raw.append(_raw(enrolled, xml, model, seed))
        ours.append(_product(enrolled))
        if case in INSTALLED:
            installed.append(virt_install_seconds(enrolled, xml, seed))
        print(f"{case} round {number}: raw {raw[-1]}, create-vm {ours[-1]}, virt-install {installed[-1:]}", flush=True)
    values = {
        "seconds": statistics.median(one.seen for one in ours),
        "raw_seconds": statistics.median(one.seen for one in raw),
        "started_seconds": statistics.median(one.started for one in ours),
        "started_raw_seconds": statistics.median(one.started for one in raw),
        "virt_install_seconds": statistics.median(installed) if installed else None,
    }
    ratios = {
        "ratio_to_raw": (values["seconds"] or 0) / (values["raw_seconds"] or 1),
        "started_ratio_to_raw": (values["started_seconds"] or 0) / (values["started_raw_seconds"] or 1),
    }
    return rows_of("create_vm", case, "vgpuctl", values | ratios)


def _run(kind: Kind) -> None:
    with (
        contextmanager(of_scenario)(kind.scenario) as host,
        tempfile.TemporaryDirectory() as state,  # a run that was interrupted leaves nothing in the next one's way
        enrol(kind, host, Path(state)) as enrolled,
    ):
        keep(_measure(enrolled), REPORT)


def main() -> int:
    cases = [kind.attachment for kind in KINDS]
    parser = argparse.ArgumentParser(prog="python -m tests.bench.create_vm")
    parser.add_argument("--case", choices=cases, nargs="+", default=cases)
    wanted = parser.parse_args().case
    for kind in KINDS:
        if kind.attachment in wanted:
            _run(kind)
    sys.stdout.write(f"{table(read(REPORT))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
