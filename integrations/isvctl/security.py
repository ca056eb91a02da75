# SPDX-License-Identifier: Apache-2.0
"""The suite ``security``: who gets in, who gets where, and what is on record. The TLS listener is in tls.py,
encryption in keys.py."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from integrations.isvctl import keys, tls
from integrations.isvctl.oidc import mfa_enforcement, oidc_user_auth_test
from integrations.isvctl.site import GIB, Results, Site, need, refusal
from integrations.isvctl.steps import Output, Step, absent
from orchestrator.client.autostart import connect_running

A: Final = "isv-security-a"
B: Final = "isv-security-b"
THING: Final = "thing"
SECONDS: Final = 900
DENIED: Final = ("access.", "tenant.", "vm.unknown", "volume.unknown", "network.unknown", "image.")
_LISTENS: Final = "0A"
"""As /proc/net/tcp has it."""


def preflight(site: Site) -> Output:
    return {"success": True, "message": f"asked as {site.admin.whoami()['actor']}"}


def api_endpoint_isolation(site: Site) -> Output:
    """Of a server as it is after installing: nothing but the socket of its directory."""
    state = site.work / "as-installed"
    usual = {name: value for name, value in os.environ.items() if not name.startswith("VGPUCTL_")}
    environment = {**usual, "VGPUCTL_STATE": str(state)}
    results = Results()
    with (site.work / "as-installed.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.server.serve"], env=environment, stdout=log, stderr=log
        )  # fmt: skip
    try:
        site.until(lambda: connect_running(state), "the server did not begin", 120)
        ports = sorted(_ports(server.pid))
        for name in ("probe_api_from_public", "probe_mgmt_from_public", "dns_not_public"):
            with results.probe(name, listening_ports=ports):
                need(not ports, f"it listens on {ports}")
        with results.probe("verify_private_only") as evidence:
            evidence["mode"] = oct((state / "serve.sock").stat().st_mode & 0o777)
            need(evidence["mode"] == "0o600", "others may use its socket")
    finally:
        server.terminate()
        server.wait(60)
    return results.told(endpoints_tested=1)


def _ports(process: int) -> set[int]:
    """TCP ports that a process listens on, of IPv4 and IPv6."""
    own = {str(path.readlink()) for path in Path(f"/proc/{process}/fd").iterdir()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENS and f"socket:[{row[9]}]" in own
    }  # fmt: skip


def sa_credential_test(site: Site) -> Output:
    with site.tenant(A) as tenant:
        about, program = site.token("isv-program", tenant, "tenant-user", SECONDS)
        caller = program.whoami()
        need(caller["only_tenant"] == tenant, "it is not known by its tenant")
        used = next(token for token in site.admin.tokens(tenant) if token["id"] == about["id"])
    return {
        "success": True, "authenticated": True, "credential_type": "token", "credential_source": "short_lived",
        "identity": caller["actor"], "expires_at": used["expires_at"],
    }  # fmt: skip


def least_privilege_test(site: Site) -> Output:
    """One who may only watch one tenant: sees its volume, changes nothing there, and sees nothing elsewhere."""
    results = Results()
    with site.tenant(A), site.tenant(B):
        for tenant in (A, B):
            site.admin.create_volume({"name": THING, "tenant": tenant, "size_bytes": GIB})
        watcher, user = (site.token(f"isv-{role}", A, role)[1] for role in ("read-only", "tenant-user"))
        wish = {"name": "more", "tenant": A, "size_bytes": GIB}
        with results.probe("policy_dimensions_allowed_action_succeeds"):
            need(watcher.volume(THING, A)["name"] == THING, "it does not see its tenant's volume")
        with results.probe("policy_dimensions_user_based") as evidence:
            evidence["code"] = refusal(lambda: watcher.create_volume(wish), *DENIED)
            user.create_volume(wish)
        with results.probe("policy_dimensions_resource_based") as evidence:
            evidence["code"] = refusal(lambda: watcher.volume(THING, B), *DENIED)
        with results.probe("out_of_scope_compute_denied") as evidence:
            evidence["code"] = refusal(lambda: watcher.create_vm(site.wish("vm", A)), *DENIED)
        with results.probe("out_of_scope_storage_denied") as evidence:
            evidence["code"] = refusal(lambda: watcher.delete_volume(THING, A), *DENIED)
        with results.probe("out_of_scope_network_denied") as evidence:
            evidence["code"] = refusal(lambda: watcher.add_network({"name": "own"}, A), *DENIED)
    return results.told(test_identity="isv-read-only", allowed_resource=f"volume {THING} of {A}")


def audit_logging_test(site: Site) -> Output:
    """A call of ours is on record with all that is asked for, and no record was ever dropped."""
    results = Results()
    began = datetime.now(UTC)
    with site.tenant(A):
        pass
    records = site.admin.connection.call("GET", "/v1/audit", None, {"limit": 50})
    made = [one for one in records if one["action"] == "create_tenant" and A in one["subject"]]
    record: dict[str, Any] = made[0] if made else {}
    with results.probe("audit_log_entry_found"):
        need(record, "making a tenant is not on record")
    with results.probe("audit_log_event_name_matches"):
        need(record.get("action"), "it has no name")
    with results.probe("audit_log_event_time_in_window") as evidence:
        evidence["at"] = record.get("at", "")
        seconds = abs((datetime.fromisoformat(record.get("at", "1970-01-01T00:00:00Z")) - began).total_seconds())
        need(seconds < 60, f"it is {seconds:.0f} s off")
    for name, member, lacking in (
        ("audit_log_user_identity_present", "actor", "who did it"),
        ("audit_log_source_ip_present", "source", "from which address"),
        ("audit_log_user_agent_matches", "user_agent", "with which program"),
        ("audit_log_event_source_matches", "interface", "through which interface"),
    ):
        with results.probe(name) as evidence:
            evidence["value"] = record.get(member)
            need(record.get(member), f"a record does not tell {lacking}")
    with results.probe("audit_log_region_matches") as evidence:
        evidence["value"] = record.get("site")
        need(evidence["value"], "a record does not tell at which site")
        need({one["site"] for one in records} == {evidence["value"]}, "records of one site name several")
    _kept(site, results)
    return results.told()


def _kept(site: Site, results: Results) -> None:
    with results.probe("audit_log_trail_logging_enabled"):
        need(not site.admin.verify_audit(None)["problems"], "the chain of records is broken")
    with results.probe("audit_log_retention_at_least_30_days") as evidence:
        evidence["first"] = next(iter(site.admin.export_audit(0)))["sequence"]
        need(evidence["first"] == 1, "the first records are gone")
        need(not site.has("DELETE /v1/audit"), "records can be deleted")


def tenant_isolation_test(site: Site) -> Output:
    """A user of the one tenant tries what the other one has."""
    results = Results()
    with site.tenant(A), site.tenant(B):
        site.vm(THING, B)
        site.admin.create_volume({"name": THING, "tenant": B, "size_bytes": GIB})
        site.admin.add_network({"name": THING}, B)
        user = site.token("isv-tenant-a", A, "tenant-admin")[1]
        elsewhere = site.wish("spy", A, network=THING)
        tried = {
            "network_isolated": (
                lambda: user.network(THING, B), lambda: user.delete_network(THING, B),
                lambda: user.add_network({"name": "mine"}, B), lambda: user.create_vm(elsewhere),
            ),
            "data_isolated": (
                lambda: user.console_log(THING, B), lambda: user.quota(B), lambda: user.members(B),
                lambda: user.tokens(B), lambda: user.policy(B), lambda: user.connection.call("GET", "/v1/audit"),
            ),
            "compute_isolated": (
                lambda: user.vm(THING, B), lambda: user.stop_vm(THING, B), lambda: user.delete_vm(THING, B),
                lambda: user.create_vm(site.wish("more", B)), user.hosts, user.gpus,
            ),
            "storage_isolated": (
                lambda: user.volume(THING, B), lambda: user.delete_volume(THING, B),
                lambda: user.attach_volume(THING, THING, B),
                lambda: user.create_volume({"name": "more", "tenant": B, "size_bytes": GIB}),
            ),
        }  # fmt: skip
        for name, acts in tried.items():
            with results.probe(name) as evidence:
                evidence["codes"] = [refusal(act, *DENIED) for act in acts]
                need(not [vm for vm in user.vms() if vm["tenant"] != A], "it sees others' VMs")
    return results.told(tenant_a_id=A, tenant_b_id=B)


def capacity_reservation_grouping(site: Site) -> Output:
    """A host is kept for the one tenant: its VM goes there, the other's is refused there and placed elsewhere."""
    with site.tenant(A), site.tenant(B):
        host = str(site.admin.plan_vm(site.wish(THING, A))["host"])
        site.admin.change_host(host, {"labels": {"kept-for": A}})
        try:
            there = {"host": host}
            own = site.vm(THING, A, **there)
            code = refusal(lambda: site.admin.create_vm(site.wish(THING, B, **there)), "host.kept")
            elsewhere = site.vm(THING, B)["host"]
            pinned = site.admin.host(host)["labels"].get("kept-for") == A
            gpus = [gpu["address"] for gpu in site.admin.host(host)["gpus"] if gpu["managed"]]
        finally:
            site.admin.change_host(host, {"labels": {"kept-for": None}})
    apart = own["host"] == host != elsewhere
    return {
        "success": apart and pinned, "reservation_id": f"{host} kept-for={A}", "account_id": A, "pinned": pinned,
        "isolation_enforced": apart, "refused_with": code,
        "resources": [{"resource_id": f"{host}/{gpu}", "account_id": A, "pinned": pinned} for gpu in gpus],
    }  # fmt: skip


def topology_block_atomic_allocation(site: Site) -> Output:
    """GPUs of one NVSwitch baseboard for one VM: all that are asked for in one partition, or none."""
    boards = [host["name"] for host in site.admin.hosts() if host["fabric"] is not None]
    need(boards, "no host has fabric partitions")
    with site.tenant(A) as tenant:
        vm = site.vm("block", tenant, profile=site.board_profile, host=boards[0])
        fabric = site.admin.host(boards[0])["fabric"]
        known = [] if fabric is None else fabric["partitions"]
        parts = [part for part in known if part["active"] and part["ours"]]
        need(len(parts) == 1, f"{len(parts)} partitions are active")
        asked, got = int(site.board_profile.partition(":")[2]), len(vm["devices"])
        refusal(lambda: site.admin.plan_vm(site.wish("more", tenant, profile="gpu:64")), "gpu.", "host.", "profile.")
        block = f"{vm['host']}/partition-{parts[0]['id']}"
        resources = [
            {
                "resource_id": device["gpu"], "resource_type": "compute", "tenant_id": tenant,
                "topology_block_id": block, "performance_domain": block, "isolation_boundary": vm["id"],
            }
            for device in vm["devices"]
        ]  # fmt: skip
        whole = got == asked == len(parts[0]["modules"])
    return {
        "success": whole,
        "topology_block": {
            "block_id": block, "reservation_id": vm["id"], "tenant_id": tenant, "allocated_as_unit": whole,
            "partial_allocation": not whole, "homogeneous": True, "isolation_enforced": parts[0]["ours"],
            "requested": {"compute": asked, "network": 0, "storage": 0},
            "allocated": {"compute": got, "network": 0, "storage": 0}, "resources": resources,
        },
    }  # fmt: skip


def teardown(site: Site) -> Output:
    for tenant in (A, B, keys.TENANT):
        site.clear(tenant)
        refusal(partial(site.admin.tenant, tenant), "tenant.unknown")
    return {"success": True, "message": "nothing is left"}


STEPS: Final = {
    "preflight": Step(preflight, "setup"),
    "api_endpoint_isolation": Step(api_endpoint_isolation),
    "mutual_tls_test": Step(tls.mutual_tls_test),
    "insecure_protocols_test": Step(tls.insecure_protocols_test),
    "mfa_enforcement": Step(mfa_enforcement),
    "cert_rotation_test": Step(tls.cert_rotation_test),
    "kms_encryption_options_test": Step(keys.kms_encryption_options_test),
    "centralized_kms_test": Step(keys.centralized_kms_test),
    "customer_managed_key_test": Step(keys.customer_managed_key_test),
    "sa_credential_test": Step(sa_credential_test),
    "oidc_user_auth_test": Step(oidc_user_auth_test),
    "short_lived_credentials_test": absent(
        "GET /v1/vms/isv/identity", "guests get no identity of their own; the server's SSH key to hosts has no end",
        "node_credential_has_expiry", "node_credential_ttl_within_bound", "workload_credential_has_expiry",
        "workload_credential_ttl_within_bound",
    ),
    "least_privilege_test": Step(least_privilege_test),
    "audit_logging_test": Step(audit_logging_test),
    "tenant_isolation_test": Step(tenant_isolation_test),
    "capacity_reservation_grouping": Step(capacity_reservation_grouping),
    "topology_block_atomic_allocation": Step(topology_block_atomic_allocation),
    "teardown": Step(teardown, "teardown"),
}  # fmt: skip
