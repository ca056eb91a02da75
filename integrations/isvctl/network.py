# SPDX-License-Identifier: Apache-2.0
"""The suite ``network``: networks of tenants. Packets are sent by real guests alone."""

from __future__ import annotations

from typing import Final

from integrations.isvctl import network_packets as packets
from integrations.isvctl.guest import NOT_REAL, in_guest, uptime_s
from integrations.isvctl.network_logs import sdn_hardware_fault_logging, sdn_latency_perf_logging
from integrations.isvctl.network_rules import sdn_filter_audit_trail, sg_crud
from integrations.isvctl.site import Results, Site, need, refusal
from integrations.isvctl.steps import Output, Step

TENANT: Final = "isv-network"
SECOND: Final = "isv-network-second"
NETWORK: Final = "front"
DNS: Final = {"dns_servers": ["192.0.2.53"], "search_domains": ["isv.internal"]}


def create_network(site: Site) -> Output:
    site.fresh_tenant(TENANT)
    network = site.admin.add_network({"name": NETWORK}, TENANT)
    subnet = {"subnet_id": network["name"], "cidr": network["subnet"]}
    return {"success": True, "network_id": network["name"], "cidr": network["subnet"], "subnets": [subnet]}


def list_vpcs(site: Site) -> Output:
    names = [network["name"] for network in site.admin.networks(TENANT)]
    listed = NETWORK in names
    return {
        "success": listed, "vpcs": [{"vpc_id": name, "vpc_name": name} for name in names], "count": len(names),
        "found_target": listed,
    }  # fmt: skip


def get_vpc(site: Site) -> Output:
    network = site.admin.network(NETWORK, TENANT)
    return {"success": True, "vpc_id": network["name"], "vpc_name": network["name"], "cidr": network["subnet"]}


def subnet_assignment(site: Site) -> Output:
    results = Results()
    with results.probe("subnet_assigned") as evidence:
        evidence["cidr"] = site.admin.network(NETWORK, TENANT)["subnet"]
        need(evidence["cidr"], "the network has no subnet")
    return results.told()


def vpc_crud(site: Site) -> Output:
    results = Results()
    with site.tenant(SECOND) as tenant:
        with results.probe("create_vpc") as evidence:
            made = site.admin.add_network({"name": "crud", "kind": "ovn", "subnet": "10.0.0.0/24"}, tenant)
            evidence["cidr"] = made["subnet"]
        with results.probe("read_vpc"):
            need(site.admin.network("crud", tenant)["name"] == "crud", "it is not read back")
        change = f"/v1/tenants/{tenant}/networks/crud"
        with results.probe("update_tags"):
            changed = site.admin.connection.call("PATCH", change, {"labels": {"stage": "test"}})
            need(changed["labels"] == {"stage": "test"}, "it has not the new labels")
        with results.probe("update_dns", **DNS):
            changed = site.admin.connection.call("PATCH", change, DNS)
            need({name: changed[name] for name in DNS} == DNS, "it has not the new servers and domains")
        with results.probe("delete_vpc") as evidence:
            site.admin.delete_network("crud", tenant)
            evidence["code"] = refusal(lambda: site.admin.network("crud", tenant), "network.unknown")
    return results.told(network_id="crud")


def vpc_isolation(site: Site) -> Output:
    """By what the API allows and what hosts are told to make; packets are not sent."""
    results = Results()
    with site.tenant(SECOND) as tenant:
        other = site.admin.add_network({"name": NETWORK}, tenant)
        own = site.admin.network(NETWORK, TENANT)
        user = site.token("isv-network-user", TENANT, "tenant-user")[1]
        with results.probe("no_peering"):
            need(own["subnet"] != other["subnet"], "both have one subnet")
            need(not own["peers"] and not other["peers"], "they are joined with some network")
        for name, wanted, networks in (
            ("no_cross_routes_a", TENANT, {f"{TENANT}.{NETWORK}"}),
            ("no_cross_routes_b", tenant, {f"{tenant}.{NETWORK}"}),
        ):
            with results.probe(name):
                need(_bridges(site, wanted) == networks, "its VM is given other networks too")
        with results.probe("sg_isolation_api") as evidence:
            evidence["code"] = refusal(lambda: user.network(NETWORK, tenant))
    return results.told(vpc_a={"id": f"{TENANT}/{NETWORK}"}, vpc_b={"id": f"{SECOND}/{NETWORK}"})


def _bridges(site: Site, tenant: str) -> set[str]:
    """Networks in the definition that a host is given for a VM of this tenant."""
    definition = site.definition(site.wish("probe", tenant, network=NETWORK))
    return {str(source.get("network")) for source in definition.findall("devices/interface/source")}


def connectivity_test(site: Site) -> Output:
    for name in ("one", "two"):
        site.vm(name, TENANT, network=NETWORK, ssh_keys=[site.ssh_key()[1]])
    instances = [{"instance_id": name, "private_ip": site.address(name, TENANT)} for name in ("one", "two")]
    results = Results()
    with results.probe("addresses_differ"):
        need(len({one["private_ip"] for one in instances}) == 2, "both have one address")
    if site.guests:
        with results.probe("packets_pass"):
            uptime_s(site, "one", TENANT)
            in_guest(site, "one", TENANT, f"ping -c 3 -w 60 {instances[1]['private_ip']}")
    return results.told(instances=instances)


def vpc_ip_config(site: Site) -> Output:
    network = site.admin.network(NETWORK, TENANT)
    subnet = {"subnet_id": NETWORK, "cidr": network["subnet"], "auto_assign_public_ip": False}
    options = {"domain_name_servers": network["dns_servers"], "domain_name": network["dns_domain"] or ""}
    need(all(options.values()), "it has no DNS server or no DNS domain")
    return {"success": True, "cidr": network["subnet"], "subnets": [subnet], "dhcp_options": options}


def dns_test(site: Site) -> Output:
    """The VMs of ``connectivity_test``: a network's domain has a record of each VM, which the other one looks up."""
    results = Results()
    network, name = site.admin.network(NETWORK, TENANT), f"two.{NETWORK}.{TENANT}.internal"
    with results.probe("create_vpc_with_dns", dns_servers=network["dns_servers"]):
        need(network["dns_servers"], "it has no DNS server")
    with results.probe("create_hosted_zone", domain=network["dns_domain"]):
        need(name == f"two.{network['dns_domain']}", "it has another DNS domain")
        other = site.admin.add_network({"name": "other"}, TENANT)
        site.admin.delete_network("other", TENANT)
        need(other["dns_domain"] not in {None, network["dns_domain"]}, "two networks have one domain")
    if not site.guests:
        results.fail(("create_dns_record", "verify_dns_settings", "resolve_record"), NOT_REAL)
        return results.told()
    address = site.address("two", TENANT)
    with results.probe("create_dns_record", fqdn=name):
        _looked_up(site, name, address)
    with results.probe("verify_dns_settings"):
        told = in_guest(site, "one", TENANT, "cat /etc/resolv.conf").split()
        need({*network["dns_servers"], network["dns_domain"]} < set(told), "the guest was told others")
    with results.probe("resolve_record", resolved_ip=address):
        _looked_up(site, "two", address)
    return results.told()


def _looked_up(site: Site, name: str, address: str) -> None:
    """By a guest. Whoever answers a ping to that name has that address."""
    said = in_guest(site, "one", TENANT, f"ping -c 1 -w 60 {name}")
    need(f"({address})" in said, f"{name} is another address than {address}")


def byoip_test(site: Site) -> Output:
    results = Results()
    with site.tenant(SECOND) as tenant:
        with results.probe("custom_cidr_create", cidr="100.64.8.0/24"):
            site.admin.add_network({"name": "own", "subnet": "100.64.8.0/24"}, tenant)
        with results.probe("custom_cidr_verify"):
            need(site.admin.network("own", tenant)["subnet"] == "100.64.8.0/24", "it has another subnet")
        with results.probe("standard_cidr_create") as evidence:
            evidence["cidr"] = site.admin.add_network({"name": "plain"}, tenant)["subnet"]
        with results.probe("no_conflict") as evidence:
            again = {"name": "again", "subnet": results["standard_cidr_create"]["cidr"]}
            evidence["code"] = refusal(lambda: site.admin.add_network(again, SECOND), "network.subnet_overlaps")
        with results.probe("custom_cidr_subnet"):
            need(site.admin.plan_vm(site.wish("probe", tenant, network="own")), "no VM can be put there")
    return results.told()


def stable_ip_test(site: Site) -> Output:
    results = Results()
    with site.tenant(SECOND) as tenant:
        with results.probe("create_instance"):
            site.vm("kept", tenant)
        with results.probe("record_ip") as evidence:
            evidence["ip"] = before = site.address("kept", tenant)
        with results.probe("stop_instance"):
            site.stop("kept", tenant)
        with results.probe("start_instance"):
            site.start("kept", tenant)
        with results.probe("ip_unchanged", ip_before=before) as evidence:
            evidence["ip_after"] = site.address("kept", tenant)
            need(evidence["ip_after"] == before, f"it is {evidence['ip_after']} now")
    return results.told()


def nvlink_domain(site: Site) -> Output:
    """Of the host that has a baseboard with NVSwitches."""
    boards = {host["name"]: host["fabric"] for host in site.admin.hosts() if host["fabric"] is not None}
    need(boards, "no host has such a baseboard")
    node, fabric = next(iter(boards.items()))
    results = Results()
    with results.probe("node_resolved"):
        need(site.admin.host(node)["name"] == node, "it is not read back")
    with results.probe("nvlink_support_detected", partitions=len(fabric["partitions"])):
        need(fabric["partitions"], "it has no partitions")
    domain = fabric["domain_id"] or ""
    with results.probe("nvlink_domain_id_present"):
        need(domain, "its GPUs are in several NVLink domains")
    return results.told(node_id=node, nvlink_supported=True, nvlink_domain_id=domain)


def teardown(site: Site) -> Output:
    for tenant in (TENANT, SECOND):
        site.clear(tenant)
    code = refusal(lambda: site.admin.tenant(TENANT), "tenant.unknown")
    return {"success": True, "message": f"nothing is left ({code})"}


STEPS: Final = {
    "create_network": Step(create_network, "setup"),
    "list_vpcs": Step(list_vpcs),
    "get_vpc": Step(get_vpc),
    "subnet_assignment": Step(subnet_assignment),
    "vpc_crud": Step(vpc_crud),
    "subnet_config": Step(packets.subnet_config),
    "vpc_isolation": Step(vpc_isolation),
    "sg_crud": Step(sg_crud),
    "security_blocking": Step(packets.security_blocking),
    "connectivity_test": Step(connectivity_test),
    "vpc_ip_config": Step(vpc_ip_config),
    "sg_workload_scoping": packets.scoped("workload", "workload_allowed", "other_workload_blocked"),
    "sg_node_scoping": packets.scoped("node", "target_node_allowed", "other_node_blocked"),
    "sg_subnet_scoping": packets.scoped("subnet", "subnet_allowed", "other_subnet_blocked"),
    "sg_service_scoping": packets.scoped("service", "service_endpoint_allowed", "other_endpoint_blocked"),
    "sg_port_security_policy": Step(packets.sg_port_security_policy),
    "sg_policy_propagation": Step(packets.sg_policy_propagation),
    "sdn_hardware_fault_logging": Step(sdn_hardware_fault_logging),
    "sdn_latency_perf_logging": Step(sdn_latency_perf_logging),
    "sdn_filter_audit_trail": Step(sdn_filter_audit_trail),
    "byoip_test": Step(byoip_test),
    "stable_ip_test": Step(stable_ip_test),
    "floating_ip_test": Step(packets.floating_ip_test),
    "dns_test": Step(dns_test),
    "peering_test": Step(packets.peering_test),
    "storage_l3_routing": Step(packets.storage_l3_routing),
    "nvlink_domain": Step(nvlink_domain),
    "teardown": Step(teardown, "teardown"),
}  # fmt: skip
