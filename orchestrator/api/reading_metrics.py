# SPDX-License-Identifier: Apache-2.0
"""What is read on hosts, as metrics (docs/reference/metrics.md). Of text that a host wrote, labels have the GPU's model
and what :data:`INFO` names, escaped; ids and names are the database's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from orchestrator.catalogue.metric_names import DcgmNames, dcgm_names, metric_name
from orchestrator.core.readings.quantities import QUANTITIES, Quantity, SubjectKind
from orchestrator.core.readings.tunnels import Tunnel
from orchestrator.core.vms.vm import Vm
from orchestrator.services.readings.believed import BelievedReading, StoredHost
from orchestrator.services.readings.networks import NetworkSums
from orchestrator.services.readings.readings import HostReadings, VmReadings

Labels = Mapping[str, str]
LabelledReading = tuple[Labels, BelievedReading]

INFO: Final[Mapping[SubjectKind, tuple[str, ...]]] = {
    "gpu": ("driver_version", "vbios_version", "pci_address"),
    "vgpu": ("vgpu_type", "guest_driver_version"),
}
"""Facts that ``vgpuctl_gpu_info`` and ``vgpuctl_vgpu_info`` have as labels."""
_GPU_STATES: Final = ("read", "passed_through", "silent")


def encoded(families: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """The page and its media type: OpenMetrics, or Prometheus's text for who does not accept that."""
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def host_families(site: str, host: HostReadings) -> Iterator[Metric]:
    """All of one host, for whoever watches the pool."""
    base = {"site": site, "host": host.known.host.name}
    yield from _of_host(base, host)
    labelled: list[LabelledReading] = [(base | _place_labels(item) | _vm_label(item), item) for item in host.readings]
    yield from _quantity_families(labelled)
    yield from _info_families(labelled)
    yield _vm_info(base, host.known.vms.values())


def tenant_families(
    site: str, tenant: str, vms: Iterable[VmReadings], networks: Iterable[NetworkSums]
) -> Iterator[Metric]:
    """Of a tenant's VMs and networks: no host, no GPU; vGPUs and instances are counted within their VM."""
    base, known = {"site": site}, list(vms)
    labelled = [entry for vm in known for entry in _within_vm(base, vm)]
    yield from _quantity_families(labelled)
    yield from _info_families([entry for entry in labelled if entry[1].reading.kind == "vgpu"])
    yield _vm_info(base, (vm.vm for vm in known))
    yield from _network_families({**base, "tenant": tenant}, networks)


def _network_families(base: Labels, networks: Iterable[NetworkSums]) -> Iterator[Metric]:
    """Sums of what is counted of cards fall when one goes, so none is a counter."""
    rates = GaugeMetricFamily(
        "vgpuctl_network_bytes_per_second", "Received and sent by VMs there, since their hosts' frame before the last"
    )
    packets = GaugeMetricFamily("vgpuctl_network_flow_packets", "Packets of the last hour in its flow log")
    left_out = GaugeMetricFamily("vgpuctl_network_flows_left_out", "Flows of the last hour that its flow log lost")
    for network in networks:
        labels = {**base, "network": network.name}
        for way, rate in sorted(network.bytes_per_s.items()):
            rates.add_sample(rates.name, {**labels, "direction": way}, rate)
        if network.flows is not None:
            counts = {"allowed": network.flows.allowed_packets, "refused": network.flows.refused_packets}
            for verdict, count in counts.items():
                packets.add_sample(packets.name, {**labels, "verdict": verdict}, count)
            left_out.add_sample(left_out.name, labels, network.flows.left_out)
    yield from (family for family in (rates, packets, left_out) if family.samples)


def dcgm_families(host: HostReadings, names: DcgmNames) -> Iterator[Metric]:
    """GPUs and GPU instances under the names and labels of NVIDIA's exporter."""
    labels = _dcgm_labels(host)
    families: dict[str, Metric] = {}
    for row in dcgm_names():
        name = row.name(names)
        family = families.setdefault(name, GaugeMetricFamily(name, f"{row.quantity} in DCGM's unit"))
        for item in host.readings:
            number = item.reading.get(row.quantity, row.label)
            if number is not None and item.gpu is not None:
                instance = (
                    {"GPU_I_ID": item.reading.id.rpartition("/")[2]} if item.reading.kind == "gpu_instance" else {}
                )
                family.add_sample(name, labels[item.gpu.address] | instance, number * row.factor)
    yield from (family for family in families.values() if family.samples)


class _Collected(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not use the families up."""
        yield from ()

    def collect(self) -> Iterable[Metric]:
        return self._families


def _of_host(base: Labels, host: HostReadings) -> Iterator[Metric]:
    """Also of a host that says nothing."""
    received = host.received
    yield _gauge(
        "vgpuctl_host_readings_present", "1: the host has sent readings lately", base, float(received is not None)
    )
    if received is not None:
        yield _gauge("vgpuctl_host_readings_age_seconds", "Since they were received", base, received.age_s)
        text = "How far the host's clock is before the server's"
        yield _gauge("vgpuctl_host_clock_ahead_seconds", text, base, received.clock_ahead_s)
        yield from _tunnel_families(base, received.frame.tunnels)
    gpus = GaugeMetricFamily("vgpuctl_host_gpus", "GPUs that were given to vgpuctl, and those of them that are there")
    for state, count in _gpu_counts(host.known):
        gpus.add_sample(gpus.name, {**base, "state": state}, count)
    yield gpus
    states = GaugeMetricFamily("vgpuctl_gpu_readings", "1: of the GPU's states this one holds")
    for item in host.readings:
        if item.reading.kind == "gpu":
            holds = _gpu_state(item)
            for state in _GPU_STATES:
                states.add_sample(states.name, {**base, **_place_labels(item), "state": state}, float(state == holds))
    yield states
    if received is not None:
        yield _unread_vgpus(base, host)


def _tunnel_families(base: Labels, tunnels: Iterable[Tunnel]) -> Iterator[Metric]:
    """To other hosts of OVN; of a host with none there is no family."""
    times = GaugeMetricFamily("vgpuctl_host_tunnel_seconds", "There and back to another host, of a few packets")
    lost = GaugeMetricFamily("vgpuctl_host_tunnel_lost_ratio", "Share of these packets that were not answered")
    for tunnel in tunnels:
        labels = {**base, "remote": tunnel.address}
        for which, time_s in (("min", tunnel.min_s), ("mean", tunnel.avg_s)):
            if time_s is not None:
                times.add_sample(times.name, {**labels, "of": which}, time_s)
        lost.add_sample(lost.name, labels, tunnel.lost / tunnel.sent)
    yield from (family for family in (times, lost) if family.samples)


def _gauge(name: str, text: str, labels: Labels, number: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_sample(name, dict(labels), number)
    return family


def _gpu_counts(known: StoredHost) -> Iterator[tuple[str, int]]:
    managed = set(known.host.managed_gpus)
    seen = known.seen
    yield "managed", len(managed)
    yield "present", len(managed & {gpu.address for gpu in seen})


def _gpu_state(item: BelievedReading) -> str:
    """One that is silent may have numbers all the same: Xids that the kernel's log told."""
    if not item.reading.silent:
        return "read"
    return "silent" if item.vm is None else "passed_through"


def _unread_vgpus(base: Labels, host: HostReadings) -> Metric:
    text = "vGPUs of the running VM of which nothing is read"
    family = GaugeMetricFamily("vgpuctl_vm_vgpus_without_readings", text)
    vgpus = (item for item in host.readings if item.reading.kind == "vgpu" and item.reading.keys)
    read = Counter(item.vm.id for item in vgpus if item.vm is not None)
    for vm in host.known.vms.values():
        if vm.state == "running":
            held = sum(not device.is_whole_gpu for device in vm.devices)
            family.add_sample(family.name, {**base, "vm": vm.id}, max(0, held - read[vm.id]))
    return family


def _place_labels(item: BelievedReading) -> dict[str, str]:
    """Where it is."""
    kind, subject = item.reading.kind, item.reading.id
    labels = {} if item.gpu is None else {"gpu": item.gpu.uuid or item.gpu.address, "model": item.model}
    if kind == "gpu_instance":
        labels["instance"] = subject.rpartition("/")[2]
    if kind == "vgpu":
        labels["vgpu"] = subject
    return labels


def _vm_label(item: BelievedReading) -> dict[str, str]:
    """Empty of what none of ours has. A GPU has no such label: its series go on when the VM goes."""
    return {} if item.reading.kind == "gpu" else {"vm": "" if item.vm is None else item.vm.id}


def _within_vm(base: Labels, vm: VmReadings) -> Iterator[LabelledReading]:
    counts = {"gpu_instance": 0, "vgpu": 0}
    for item in sorted(vm.readings, key=lambda item: item.reading.id):
        labels = {**base, "vm": vm.vm.id}
        if item.reading.kind in counts:
            name = "instance" if item.reading.kind == "gpu_instance" else "vgpu"
            labels[name] = str(counts[item.reading.kind])
            counts[item.reading.kind] += 1
        yield labels, item


def _quantity_families(labelled: list[LabelledReading]) -> Iterator[Metric]:
    """By quantity, in the table's order; of what nothing has there is no family."""
    families = {quantity.name: _family(quantity) for quantity in QUANTITIES}
    for labels, item in labelled:
        for quantity, label, number in item.reading.values():
            own = {quantity.label: label} if quantity.label else {}
            families[quantity.name].add_sample(metric_name(quantity.name), {**labels, **own}, number)
    yield from (family for family in families.values() if family.samples)


def _family(quantity: Quantity) -> Metric:
    name = metric_name(quantity.name)
    if quantity.kind == "counter":
        return CounterMetricFamily(name.removesuffix("_total"), quantity.help)
    return GaugeMetricFamily(name, quantity.help)


def _info_families(labelled: list[LabelledReading]) -> Iterator[Metric]:
    for kind, facts in INFO.items():
        family = InfoMetricFamily(f"vgpuctl_{kind}", "What it is; always 1")
        for labels, item in labelled:
            if item.reading.kind == kind:
                labels_of_facts = {fact: item.reading.facts.get(fact, "") for fact in facts}
                family.add_sample(f"{family.name}_info", {**labels, **labels_of_facts}, 1)
        if family.samples:
            yield family


def _vm_info(base: Labels, vms: Iterable[Vm]) -> Metric:
    """By which a VM's series get its name: a VM that is renamed keeps its series."""
    family = InfoMetricFamily("vgpuctl_vm", "Who a VM is; always 1")
    for vm in vms:
        names = {"vm": vm.id, "name": vm.spec.name, "tenant": vm.spec.tenant, "offering": vm.spec.profile}
        family.add_sample("vgpuctl_vm_info", {**base, **names}, 1)
    return family


def _dcgm_labels(host: HostReadings) -> dict[str, dict[str, str]]:
    """By the GPU's PCI address."""
    name = host.known.host.name
    gpus = host.known.seen
    drivers = {
        item.gpu.address: item.reading.facts.get("driver_version", "")
        for item in host.readings
        if item.reading.kind == "gpu" and item.gpu is not None
    }
    return {
        gpu.address: {
            "gpu": str(number),
            "UUID": gpu.uuid,
            "pci_bus_id": f"0000{gpu.address.upper()}",
            "device": f"nvidia{number}",
            "modelName": gpu.model,
            "Hostname": name,
            "hostname": name,
            "DCGM_FI_DRIVER_VERSION": drivers.get(gpu.address, ""),
        }
        for number, gpu in enumerate(sorted(gpus, key=lambda gpu: gpu.address))
    }
