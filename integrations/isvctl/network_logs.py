# SPDX-License-Identifier: Apache-2.0
"""Of the suite ``network``: what is on record of its faults and its traffic."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from integrations.isvctl.site import Results, Site, need
from integrations.isvctl.steps import Output
from vgpuctl import models

TENANT: Final = "isv-network-logs"
FAULTS: Final = ("host.", "ovn.", "network.")
"""Findings of what networks stand on begin so: hosts that are not reached, tunnels that carry nothing."""
DESTINATION: Final = "GET /v1/findings"
WITHIN_S: Final = 60.0


def sdn_hardware_fault_logging(site: Site) -> Output:
    """A fault is a finding as long as it is there, with when it was seen first and last."""
    results, faults = Results(), list[models.Finding]()
    with results.probe("logging_endpoint_reachable") as evidence:
        findings = site.admin.findings(None)
        evidence["findings"] = len(findings)
    with results.probe("fault_event_source_queryable"):
        faults = [one for one in site.admin.findings(None) if one["code"].startswith(FAULTS)]
    with results.probe("log_destination_configured", destination=DESTINATION):
        need(results["logging_endpoint_reachable"]["passed"], "it has none")
    with results.probe("event_schema_valid"):
        need(results["fault_event_source_queryable"]["passed"], "nothing was read")
        need(all(one["host"] and one["first_seen"] for one in faults), "a finding lacks one of its fields")
    return results.told(log_destination=DESTINATION, recent_event_count=len(faults))


def sdn_latency_perf_logging(site: Site) -> Output:
    """Bytes, packets and drops of a VM's card, as Prometheus scrapes them; latency between hosts is not measured."""
    results, page, vm = Results(), f"/v1/metrics/tenants/{TENANT}", "measured"
    with site.tenant(TENANT):
        site.vm(vm, TENANT)
        with results.probe("metrics_endpoint_reachable"):
            site.metrics(page)
        for probe, counted in (("performance_metric_present", "bytes|drop"), ("packet_metric_present", "packets")):
            with results.probe(probe) as evidence:
                evidence["metric_names"] = site.until(
                    partial(_names, site, page, counted), "the VM had no readings", WITHIN_S
                )
        with results.probe("samples_recent"):
            need(site.admin.vm_readings(vm, TENANT)["age_s"] is not None, "its host is not heard")
    return results.told(telemetry_namespace=page, sample_window_seconds=30, probe_resource_id=f"{TENANT}/{vm}")


def _names(site: Site, page: str, counted: str) -> list[str]:
    pattern = re.compile(rf"^libvirt_domain_interface_stats_\w*(?:{counted})\w*", re.MULTILINE)
    return sorted(set(pattern.findall(site.metrics(page))))
