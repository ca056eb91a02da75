# SPDX-License-Identifier: Apache-2.0
"""The power of a host with every kind of VM is cut while no controller runs: all is back as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.enrolled import VENDOR_VFIO, Enrolled, enrol_alone
from tests.lab.host_facts import facts

pytestmark = pytest.mark.lab

_OPENED_S = 60
OFFERINGS = """\
schema_version: 1
offerings:
  - name: fair
    kind: time_sliced
    vgpu_type: GRID T4-1Q
    scheduler: {policy: equal_share, time_slice_ms: 3}
    parameters: {frame_rate_limiter: false}
  - name: all-memory
    kind: time_sliced
    vgpu_type: NVIDIA L40S-48C
    parameters: {uvm: true, frame_rate_limiter: false, console: false}
  - name: slice
    kind: mig_backed
    vgpu_type: GRID A100D-1-20C
    parameters: {uvm: true}
"""
ILLEGAL = """\
schema_version: 1
offerings:
  - {name: illegal, kind: time_sliced, vgpu_type: NVIDIA L40S-12C, parameters: {uvm: true}}
"""
LAYOUT = """\
version: v1
mig-configs:
  for-containers:
    - devices: [5]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "3g.40gb": 1}
"""
T4, A40, L40S, WHOLE, A100, CUT = range(6)
"""The host's GPUs, in PCI order; CUT is for the layout."""
VMS = {
    "fair": ("fair", T4),
    "half": ("a40-24q-mixed", A40),
    "quarter": ("a40-12q-mixed", A40),
    "all-memory": ("all-memory", L40S),
    "whole": ("gpu:1", WHOLE),
    "slice": ("slice", A100),
}
"""VM → profile and GPU."""
PARAMETERS = ["enable_uvm=1", "enable_uvm=1,frame_rate_limiter=0,disable_vnc=1", "frame_rate_limiter=0"]
_DRIVER = """
cd /sys/kernel/vgpu_lab/gpus
for gpu in *; do
  grep -E '^(bound|heterogeneous|numvfs|scheduler) ' $gpu/state | sed "s/^/$gpu /"
  grep -E '^(mode|gi) ' $gpu/mig | sed "s/^/$gpu mig /"
  awk '{print "'$gpu' vgpu", $2, $3, "open", $5, "placement", $6, "instance", $8}' $gpu/vgpus
done
cd /sys/bus; grep -H . mdev/devices/*/nvidia/vgpu_params pci/devices/*/nvidia/vgpu_params 2>/dev/null
for vm in $(virsh -q list --uuid); do
  virsh dumpxml $vm | grep -A6 '<hostdev' | grep '<address' | sed "s/^ */$vm /"
done
"""
"""What the driver says of each GPU and vGPU, parameters of vGPUs, devices of VMs that run."""
_LEDGER = """python3 -c '
import json, sqlite3
db = sqlite3.connect("/var/lib/vgpuctl-agent/ledger/ledger.sqlite")
print(*sorted(map(json.dumps, db.execute("SELECT object, vm, detail FROM owners"))), sep="\\n")
print(*sorted(map(json.dumps, db.execute("SELECT vm, devices, running, boot_policy, problem FROM wanted"))), sep="\\n")
'"""


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    kind = replace(VENDOR_VFIO, scenario="various", profile="all-memory", gpus=6, smallest=True)
    with enrol_alone(kind, tmp_path_factory.mktemp("state"), OFFERINGS) as one:
        yield one


def gpus(enrolled: Enrolled) -> list[str]:
    return sorted(str(one["address"]) for one in enrolled.product.json("gpu", "list"))


def standing(enrolled: Enrolled) -> dict[str, list[str]]:
    """Everything that a reset takes away, and what the agent has written down, read past the product."""
    shown = {"driver": _DRIVER, "ledger": _LEDGER}
    told = {name: sorted(enrolled.shell(command).splitlines()) for name, command in shown.items()}
    return {**facts(enrolled.shell), **told}


def parameters(state: Mapping[str, list[str]]) -> list[str]:
    return sorted(line.partition("vgpu_params:")[2] for line in state["driver"] if "vgpu_params:" in line)


def until_as(wanted: Mapping[str, list[str]], read: Callable[[], Mapping[str, list[str]]]) -> None:
    """A VM runs for libvirt some seconds before its QEMU has all its devices."""
    deadline = time.monotonic() + _OPENED_S
    while (seen := read()) != wanted:
        differ = {about: sorted({*wanted[about]} ^ {*seen[about]}) for about in wanted if wanted[about] != seen[about]}
        assert time.monotonic() < deadline, differ
        time.sleep(3)


def make_all(enrolled: Enrolled, directory: Path) -> dict[str, str]:
    """VMs → their ids; and a layout beside them."""
    product, at = enrolled.product, gpus(enrolled)
    for name, (profile, gpu) in VMS.items():
        product.ok(*enrolled.request_of(name, profile, "--gpu", at[gpu]))
    (directory / "mig.yaml").write_text(LAYOUT)
    product.ok("mig", "apply", enrolled.name, "-f", str(directory / "mig.yaml"), "-c", "for-containers")
    return {name: str(product.json("show-vm", name)["id"]) for name in VMS}


@pytest.mark.fault("F18")
def test_all_is_as_it_was_before_a_controller_runs(enrolled: Enrolled, tmp_path: Path) -> None:
    product = enrolled.product
    (tmp_path / "illegal.yaml").write_text(ILLEGAL)
    assert "uvm" in product.refused(2, "profile", "add", str(tmp_path / "illegal.yaml")).err
    vms = make_all(enrolled, tmp_path)
    made = standing(enrolled)
    assert parameters(made) == PARAMETERS
    assert product.json("doctor") == []

    enrolled.restored_after_a_hard_reset(*vms)
    until_as(made, lambda: standing(enrolled))
    assert product.json("doctor") == []
    assert product.json("host", "show", enrolled.name)["problems"] == []
    product.ok("mig", "release", enrolled.name, "--yes")
