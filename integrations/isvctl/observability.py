# SPDX-License-Identifier: Apache-2.0
"""The suite ``observability``: what is told of the site by itself. Exporters on hosts are the operator's own."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from integrations.isvctl.site import GIB, Results, Site, need
from integrations.isvctl.steps import Output, Step, absent

TENANT: Final = "isv-telemetry"
METRICS: Final = "/metrics"
SOURCE: Final = f"GET {METRICS}"
WITHIN_S: Final = 60.0


def telemetry_delivery_latency(site: Site) -> Output:
    """Seconds until a VM's claim is counted."""
    results = Results()
    with site.tenant(TENANT) as tenant:
        with results.probe("telemetry_endpoint_reachable", probes={"telemetry_source": SOURCE}):
            before = _claims(site)
        with results.probe("delivery_sample_present"):
            site.vm("counted", tenant)
            began = time.monotonic()
            site.until(lambda: _claims(site) > before, "the VM was not counted", WITHIN_S)
            seconds = int(time.monotonic() - began)
        evidence = {"observed_delivery_seconds": seconds, "max_delivery_seconds": int(WITHIN_S)}
        with results.probe("delivery_within_threshold", probes=evidence):
            need(results["delivery_sample_present"]["passed"], "there was no sample")
    return results.told()


def _claims(site: Site) -> float:
    return sum(float(line.split()[-1]) for line in _samples(site, r"vgpuctl_gpu_claims\{"))


def _samples(site: Site, pattern: str, pages: Sequence[str] = (METRICS,)) -> list[str]:
    return [line for page in pages for line in site.metrics(page).splitlines() if re.match(pattern, line)]


def _measured(
    site: Site, present: str, pattern: str, why: str, pages: Sequence[str], within_s: float, **more: object
) -> Output:
    results = Results()
    samples: list[str] = []
    with results.probe("telemetry_endpoint_reachable", probes={"telemetry_source": f"GET {pages[0]}"}):
        site.metrics(pages[0])
    evidence: dict[str, object] = dict(more)
    with results.probe(present, probes=evidence):
        samples = site.until(lambda: _samples(site, pattern, pages), why, within_s)
        evidence |= {
            "metric_names": sorted({re.split(r"[ {]", line)[0] for line in samples}), "sample_count": len(samples),
        }  # fmt: skip
    with results.probe("samples_recent", probes={"latest_timestamp": datetime.now(UTC).isoformat()}):
        need(samples, why)
    return results.told()


def unmeasured(present: str, pattern: str, why: str) -> Step:
    """Readings that ``/metrics`` has not; should something match ``pattern``, this step has to be written."""
    return Step(lambda site: _measured(site, present, pattern, why, [METRICS], 0))


def of_a_vm(present: str, pattern: str, **evidence: object) -> Step:
    """Readings of a VM that its tenant's page has."""

    def act(site: Site) -> Output:
        with site.tenant(TENANT) as tenant:
            site.vm("measured", tenant)
            pages = [f"/v1/metrics/tenants/{tenant}"]
            return _measured(site, present, pattern, "the VM had no readings", pages, WITHIN_S, **evidence)

    return Step(act)


def gpu_nvlink_telemetry(site: Site) -> Output:
    """Of every host, as which ones have links is not known before."""
    pages = [f"/v1/metrics/hosts/{host['name']}" for host in site.admin.hosts()]
    links = len(_samples(site, r"vgpuctl_gpu_nvlink_up\{", pages))
    return _measured(
        site, "link_metrics_present", r"vgpuctl_gpu_nvlink_", "no GPU tells of a link", pages, WITHIN_S,
        links_checked=links,
    )  # fmt: skip


def storage_capacity_telemetry(site: Site) -> Output:
    """A volume of ours is counted as large as it was asked for, beside what hosts have left."""
    results = Results()
    kinds = {
        "total": "vgpuctl_volume_size_bytes", "used": "vgpuctl_volume_used_bytes",
        "free": 'vgpuctl_host_storage_bytes{state="free"}',
    }  # fmt: skip
    with site.tenant(TENANT) as tenant:
        with results.probe("telemetry_endpoint_reachable", probes={"telemetry_source": SOURCE}):
            before = _value(site, kinds["total"])
        with results.probe("samples_recent", probes={"latest_timestamp": datetime.now(UTC).isoformat()}):
            site.admin.create_volume({"name": "counted", "tenant": tenant, "size_bytes": GIB})
            grown = _value(site, kinds["total"]) - before
            need(grown == GIB, f"a volume of 1 GiB was counted as {grown:.0f} bytes")
        evidence: dict[str, object] = {}
        with results.probe("capacity_metrics_present", probes=evidence):
            found = {kind: _value(site, name) for kind, name in kinds.items()}
            need(found["free"] > 0 and found["used"] <= found["total"], "hosts have nothing left, or volumes too much")
            evidence |= {
                "capacity_kinds": sorted(found), "metric_names": sorted(kinds.values()), "sample_count": len(found),
                "volumes_checked": int(_value(site, "vgpuctl_volumes")),
            }  # fmt: skip
    return results.told()


def _value(site: Site, name: str) -> float:
    """:raises Unmet: it is not told"""
    samples = _samples(site, re.escape(name) + " ")
    need(samples, f"/metrics has no {name}")
    return float(samples[0].split()[-1])


def vpc_flow_logs(site: Site) -> Output:
    """What is logged, and where it is read; packets are logged where real guests send some."""
    results, path = Results(), f"/v1/tenants/{TENANT}/networks/wide"
    with site.tenant(TENANT) as tenant:
        site.admin.add_network({"name": "wide", "kind": "ovn", "subnet": "10.0.0.0/24"}, tenant)
        site.vm("logged", tenant, network="wide")
        with results.probe("flow_log_endpoint_reachable", probes={"network_id": f"{tenant}/wide"}):
            need(site.admin.network_flows("wide", tenant)["flow_log"] == "off", "it is logged unasked")
        with results.probe("flow_logs_configured"):
            site.admin.describe_network("wide", {"flow_log": "all"}, tenant)
        answer = site.admin.network_flows("wide", tenant)
        with results.probe("traffic_type_all", probes={"traffic_type": str(answer["flow_log"]).upper()}):
            need(answer["flow_log"] == "all", "it logs less")
        with results.probe("log_destination_accessible", probes={"log_destination": f"GET {path}/flows"}):
            need(not answer["silent_hosts"], "a host with its VMs is not heard")
    return results.told()


STEPS: Final = {
    "telemetry_delivery_latency": Step(telemetry_delivery_latency),
    "north_south_network_telemetry": of_a_vm("plane_metrics_present", "libvirt_domain_interface_stats_"),
    "host_nic_network_telemetry": unmeasured(
        "nic_metrics_present", r"vgpuctl_(host_)?nic_", "/metrics has no readings of hosts' network cards; "
        "prepare-host.yml brings an exporter to each host",
    ),
    "vpc_flow_logs": Step(vpc_flow_logs),
    "host_syslogs": absent(
        "GET /v1/hosts/isv/log", "logs stay on their hosts (journalctl); the API fetches none",
        "syslog_endpoint_reachable", "host_log_source_present", "entries_recent",
    ),
    "storage_capacity_telemetry": Step(storage_capacity_telemetry),
    "storage_performance_telemetry": of_a_vm(
        "performance_metrics_present", "libvirt_domain_block_stats_", volumes_checked=1,
        performance_kinds=["bandwidth", "iops", "latency"],
    ),
    "gpu_nvlink_telemetry": Step(gpu_nvlink_telemetry),
    "fabric_manager_logs": absent(
        "GET /v1/hosts/isv/fabric/log", "the API tells the state of Fabric Manager and its partitions, not its log",
        "log_endpoint_reachable", "log_source_present", "log_entries_queryable",
    ),
}  # fmt: skip
