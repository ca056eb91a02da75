# SPDX-License-Identifier: Apache-2.0
"""``<memoryBacking>``, ``<vcpu>``, ``<cputune>``, ``<numatune>`` and ``<cpu>``: what a domain's memory is made of and
where it is, and on which of the host's CPUs it runs."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from orchestrator.core.hosts.cpus import cpus_text
from orchestrator.core.hosts.domain import DomainDescription


def vcpu(domain: DomainDescription) -> ET.Element:
    """vCPUs that float have a set of CPUs that leaves those out that other VMs have alone."""
    element = ET.Element("vcpu", placement="static")
    if domain.cpus is not None and not domain.cpus.pinned:
        element.set("cpuset", cpus_text(domain.cpus.shared))
    element.text = str(domain.vcpus)
    return element


def memory_backing(domain: DomainDescription) -> Iterator[ET.Element]:
    """Huge pages of one size, which QEMU takes all of before the guest begins."""
    if domain.cpus is not None and domain.cpus.page_kib:
        backing = ET.Element("memoryBacking")
        ET.SubElement(ET.SubElement(backing, "hugepages"), "page", size=str(domain.cpus.page_kib), unit="KiB")
        yield backing


def cpu_tuning(domain: DomainDescription) -> Iterator[ET.Element]:
    """A CPU for each vCPU; QEMU's own threads, which would take time from these, run among those that share."""
    place = domain.cpus
    if place is None:
        return
    if place.pinned:
        tune = ET.Element("cputune")
        for number, cpu_of_host in enumerate(place.pinned):
            ET.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=str(cpu_of_host))
        ET.SubElement(tune, "emulatorpin", cpuset=cpus_text(place.shared))
        yield tune
    if place.memory != "any":
        numa = ET.Element("numatune")
        ET.SubElement(numa, "memory", mode=place.memory, nodeset=cpus_text(place.nodes))
        yield numa


def cpu(domain: DomainDescription) -> ET.Element:
    """The host's own model. A guest whose vCPUs are pinned is told which of them are threads of one core."""
    element = ET.Element("cpu", mode="host-passthrough")
    if domain.cpus is not None and domain.cpus.pinned:
        threads = domain.cpus.threads
        cores = str(domain.vcpus // threads)
        ET.SubElement(element, "topology", sockets="1", dies="1", cores=cores, threads=str(threads))
    return element
