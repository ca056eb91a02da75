# SPDX-License-Identifier: Apache-2.0
"""Of the suite ``network``: security groups, and what is on record of them."""

from __future__ import annotations

from typing import Final

from integrations.isvctl.site import Results, Site, need, refusal
from integrations.isvctl.steps import Output

TENANT: Final = "isv-rules"
GROUP: Final = "web"
HTTPS: Final = {"direction": "in", "protocol": "tcp", "first_port": 443}
SSH: Final = {"direction": "in", "protocol": "tcp", "first_port": 22, "remote": "10.0.0.0/8"}


def sg_crud(site: Site) -> Output:
    results = Results()
    with site.tenant(TENANT) as tenant:
        with results.probe("create_vpc") as evidence:
            evidence["vpc_id"] = site.admin.add_network({"name": "front"}, tenant)["name"]
        with results.probe("create_sg") as evidence:
            evidence["sg_id"] = site.admin.create_security_group({"name": GROUP, "tenant": tenant})["name"]
        with results.probe("read_sg") as evidence:
            evidence["name"] = site.admin.security_group(GROUP, tenant)["name"]
        for probe, changes, ports in (
            ("update_sg_add_rule", {"add": [HTTPS]}, {443}),
            ("update_sg_modify_rule", {"add": [SSH], "remove": [HTTPS]}, {22}),
            ("update_sg_remove_rule", {"remove": [SSH]}, set[int]()),
        ):
            with results.probe(probe):
                site.admin.change_group_rules(GROUP, changes, tenant)
                rules = site.admin.security_group(GROUP, tenant)["rules"]
                need({rule["first_port"] for rule in rules if rule["first_port"]} == ports, "it has other rules")
        with results.probe("delete_sg"):
            site.admin.delete_security_group(GROUP, tenant)
        with results.probe("verify_deleted") as evidence:
            evidence["code"] = refusal(lambda: site.admin.security_group(GROUP, tenant), "group.unknown")
    return results.told()


def sdn_filter_audit_trail(site: Site) -> Output:
    results, subject = Results(), f"{TENANT}/{GROUP}"
    with site.tenant(TENANT) as tenant:
        site.admin.create_security_group({"name": GROUP, "tenant": tenant})
        site.admin.change_group_rules(GROUP, {"add": [HTTPS]}, tenant)
        site.admin.change_group_rules(GROUP, {"add": [SSH], "remove": [HTTPS]}, tenant)
        site.admin.change_group_rules(GROUP, {"remove": [SSH]}, tenant)
        with results.probe("audit_endpoint_reachable"):
            records = site.admin.connection.pages("/v1/audit", {"subject": subject})
        actions = [str(record["action"]) for record in records]
        for probe, action in (
            ("create_rule_logged", "change_security_group +in tcp 443"),
            ("modify_rule_logged", "change_security_group +in tcp 22 from 10.0.0.0/8, -in tcp 443"),
            ("delete_rule_logged", "change_security_group -in tcp 22 from 10.0.0.0/8"),
        ):
            with results.probe(probe):
                need(action in actions, f"the audit has no '{action}'")
        with results.probe("audit_event_has_required_fields"):
            fields = ("at", "actor", "action", "subject", "outcome")
            need(all(record[field] for record in records for field in fields), "a record lacks one of its fields")
    with results.probe("cleanup") as evidence:
        evidence["code"] = refusal(lambda: site.admin.tenant(TENANT), "tenant.unknown")
    return results.told(trail_id="/v1/audit", actor_field="actor", target_rule_id=subject)
