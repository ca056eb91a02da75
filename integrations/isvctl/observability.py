# SPDX-License-Identifier: Apache-2.0
"""The suite ``observability``: what is told of the site by itself. Exporters on hosts are the operator's own."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

from integrations.isvctl.site import GIB, Results, Site, need
from integrations.isvctl.steps import Output, Step, absent

TENANT: Final = "isv-telemetry"
SOURCE: Final = "GET /metrics"
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


def _samples(site: Site, pattern: str) -> list[str]:
    return [line for line in site.metrics().splitlines() if re.match(pattern, line)]


def measured(present: str, pattern: str, why: str, counted: str | None = None) -> Step:
    """Readings that ``/metrics`` has; ``why`` there are none is said where nothing matches ``pattern``."""

    def act(site: Site) -> Output:
        results = Results()
        samples: list[str] = []
        with results.probe("telemetry_endpoint_reachable", probes={"telemetry_source": SOURCE}):
            samples = _samples(site, pattern)
        names = sorted({re.split(r"[ {]", line)[0] for line in samples})
        evidence: dict[str, object] = {"metric_names": names, "sample_count": len(samples)}
        if counted is not None:
            evidence[counted] = len(samples)
        with results.probe(present, probes=evidence):
            need(samples, why)
        with results.probe("samples_recent", probes={"latest_timestamp": datetime.now(UTC).isoformat()}):
            need(samples, why)
        return results.told()

    return Step(act)


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


STEPS: Final = {
    "telemetry_delivery_latency": Step(telemetry_delivery_latency),
    "north_south_network_telemetry": measured(
        "plane_metrics_present", r"vgpuctl_(network|vm_network)_", "/metrics counts no traffic of networks or VMs; "
        "hosts' exporters come with prepare-host.yml and are scraped by the operator",
    ),
    "host_nic_network_telemetry": measured(
        "nic_metrics_present", r"vgpuctl_(host_)?nic_", "/metrics has no readings of hosts' network cards; "
        "prepare-host.yml brings an exporter to each host", "nics_checked",
    ),
    "vpc_flow_logs": absent(
        "GET /v1/networks/isv/flows", "flows of networks are not recorded", "flow_log_endpoint_reachable",
        "flow_logs_configured", "traffic_type_all", "log_destination_accessible",
    ),
    "host_syslogs": absent(
        "GET /v1/hosts/isv/log", "logs stay on their hosts (journalctl); the API fetches none",
        "syslog_endpoint_reachable", "host_log_source_present", "entries_recent",
    ),
    "storage_capacity_telemetry": Step(storage_capacity_telemetry),
    "storage_performance_telemetry": measured(
        "performance_metrics_present", r"vgpuctl_volume_(read|write|io)", "what volumes read and write is not measured",
        "volumes_checked",
    ),
    "gpu_nvlink_telemetry": measured(
        "link_metrics_present", r"vgpuctl_(gpu_)?nvlink_", "/metrics has no readings of links; DCGM's exporter comes "
        "with prepare-host.yml or as a role of guests", "links_checked",
    ),
    "fabric_manager_logs": absent(
        "GET /v1/hosts/isv/fabric/log", "the API tells the state of Fabric Manager and its partitions, not its log",
        "log_endpoint_reachable", "log_source_present", "log_entries_queryable",
    ),
}  # fmt: skip
