# SPDX-License-Identifier: Apache-2.0
"""CPUs of a VM's own near its GPU, on a host of two NUMA nodes of two processors each; after a hard reset as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.lab.enrolled import MDEV, Enrolled, enrol_alone

pytestmark = pytest.mark.lab

OFFERINGS = """\
schema_version: 1
offerings:
  - {name: own, kind: time_sliced, vgpu_type: GRID T4-1Q, cpu: pinned, numa: strict}
"""
_THREADS = """
for task in /proc/{pid}/task/*; do
  [ ${{task##*/}} = {pid} ] && name=first || name=$(cat $task/comm)
  echo "$name=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $task/status)"
done"""
"""Of QEMU: the name that it gives each thread, and where the kernel lets that run."""


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    kind = replace(MDEV, profile="own", scenario="two-nodes", gpus=2, smallest=True)
    with enrol_alone(kind, tmp_path_factory.mktemp("state"), OFFERINGS) as one:
        yield one


def _where(enrolled: Enrolled, name: str) -> tuple[str, str, str, str]:
    """The CPU of its vCPU and of QEMU's first thread by the definition and by the kernel, and its memory's node."""
    vm = enrolled.product.json("show-vm", name)["id"]
    root = ET.fromstring(enrolled.shell(f"virsh dumpxml {vm}"))
    pin, memory = root.find("cputune/vcpupin"), root.find("numatune/memory")
    assert pin is not None
    assert memory is not None
    pid = enrolled.running_since(name)
    threads = dict(line.split("=", 1) for line in enrolled.shell(_THREADS.format(pid=pid)).split("\n") if "=" in line)
    assert threads["CPU 0/KVM"] == pin.get("cpuset")
    return str(pin.get("cpuset")), threads["first"], str(memory.get("mode")), str(memory.get("nodeset"))


def test_vms_run_on_cpus_of_their_own_near_their_gpus_also_after_a_hard_reset_with_no_controller(
    enrolled: Enrolled,
) -> None:
    product = enrolled.product
    nodes = product.json("host", "show", enrolled.name)["numa_nodes"]
    assert [node["cpus"] for node in nodes] == ["0-1", "2-3"]
    product.ok("host", "set", enrolled.name, "--pinnable-cpus", "1,3")
    for name in ("a", "b"):
        product.ok(*enrolled.request(name))
    assert "host.cpus" in product.refused(8, *enrolled.request("c")).err
    seen = {name: _where(enrolled, name) for name in ("a", "b")}
    assert sorted(seen.values()) == [("1", "0", "strict", "0"), ("3", "2", "strict", "1")]

    enrolled.restored_after_a_hard_reset("a", "b")
    assert {name: _where(enrolled, name) for name in ("a", "b")} == seen
    assert product.json("doctor") == []
