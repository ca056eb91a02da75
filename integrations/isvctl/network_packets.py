# SPDX-License-Identifier: Apache-2.0
"""Of the suite ``network``: who reaches whom on networks over all hosts, as OVN's own ovn-trace says it. Where guests
are real, the same rules judge their packets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Final

from integrations.isvctl.site import Results, Site, need
from integrations.isvctl.steps import Output, Step
from vgpuctl import VgpuctlError

TENANT: Final = "isv-packets"
NETWORK: Final = "wide"
NEAR, FAR = "10.0.0.0/24", "10.0.1.0/24"
HTTPS: Final = {"direction": "in", "protocol": "tcp", "first_port": 443, "last_port": 443}
OUT: Final = {"direction": "out", "protocol": "any"}
WITHIN_S: Final = 60.0
OUTSIDE: Final = "isv-outside"


def overlay(site: Site, tenant: str, name: str = NETWORK, **more: object) -> None:
    """A network over all hosts, of two subnets."""
    wanted = {"name": name, "kind": "ovn", "subnet": NEAR, "more_subnets": [FAR], **more}
    site.admin.add_network(wanted, tenant)


def arrives(site: Site, sender: str, receiver: str, port: int | None = 443, tenant: str = TENANT) -> bool:
    """Once hosts have set both cards up. :raises Unmet: they have not"""
    protocol = "icmp" if port is None else "tcp"

    def judged() -> list[bool]:
        path = site.admin.network_path(sender, receiver, tenant, protocol, port)
        return [] if path["obstacles"] else [path["arrives"]]

    return bool(site.until(judged, f"the cards of {sender} and {receiver} were not set up", WITHIN_S)[0])


def group(site: Site, name: str, *rules: Mapping[str, object], **use: str) -> None:
    """One with these rules, on what ``use`` says."""
    site.admin.create_security_group({"name": name, "tenant": TENANT, "rules": list(rules)})
    site.admin.change_group_uses(name, {"add": [use]}, TENANT)


@contextmanager
def scene(site: Site, **vms: Mapping[str, object]) -> Iterator[None]:
    """VMs on one network, by name, with what is special about them."""
    with site.tenant(TENANT):
        overlay(site, TENANT)
        for name, more in vms.items():
            site.vm(name, TENANT, **{"network": NETWORK, **more})
        yield


def security_blocking(site: Site) -> Output:
    results = Results()
    with scene(site, client={}, target={}):
        with results.probe("sg_default_deny_inbound"):
            group(site, "target", OUT, vm="target")
            need(not arrives(site, "client", "target"), "a group without rules lets something in")
        with results.probe("sg_allows_specific_ssh") as evidence:
            evidence["source"] = source = f"{site.admin.vm('client', TENANT)['cards'][0]['address']}/32"
            ssh = {**HTTPS, "first_port": 22, "last_port": 22, "remote": source}
            site.admin.change_group_rules("target", {"add": [ssh]}, TENANT)
            need(arrives(site, "client", "target", 22), "SSH does not pass")
            need(not arrives(site, "client", "target", 23), "another port passes")
        with results.probe("sg_denies_vpc_icmp"):
            need(not arrives(site, "client", "target", None), "ICMP passes")
        with results.probe("nacl_explicit_deny"):
            group(site, "denied", OUT, {**ssh, "refuse": True}, network=NETWORK)
            need(not arrives(site, "client", "target", 22), "what a group of the network refuses passes by another one")
            site.admin.change_group_uses("denied", {"remove": [{"network": NETWORK}]}, TENANT)
            need(arrives(site, "client", "target", 22), "SSH does not pass when it is refused no more")
        with results.probe("sg_restricted_egress"):
            group(site, "client", {**HTTPS, "direction": "out"}, vm="client")
            need(not arrives(site, "client", "target", 22), "it sends what its group does not allow")
    return results.told()


def scoped(kind: str, allowed: str, blocked: str) -> Step:
    """A rule for one workload (a card), node (a VM), subnet or service (a port): the rest of the network stays shut."""
    rule = {**HTTPS, "remote": NEAR} if kind == "subnet" else HTTPS
    use = {"vm": "target", "network": NETWORK} if kind == "workload" else {"vm": "target"}
    passing, refused = ("client", "target", 443), {
        "subnet": ("distant", "target", 443), "service": ("client", "target", 8443),
    }.get(kind, ("client", "other", 443))  # fmt: skip
    third = {"distant": {"addresses": {NETWORK: "10.0.1.9"}}} if kind == "subnet" else {"other": {}}
    near: dict[str, dict[str, object]] = {"client": {"addresses": {NETWORK: "10.0.0.9"}}, "target": {}}

    def act(site: Site) -> Output:
        results = Results()
        with scene(site, **near, **third):
            with results.probe("create_sg"):
                group(site, "shut", OUT, network=NETWORK)
            with results.probe(f"apply_{kind}_rule"):
                group(site, kind, OUT, rule, **use)
            with results.probe(allowed):
                need(arrives(site, *passing), "what the rule is for does not pass")
            with results.probe(blocked):
                need(not arrives(site, *refused), "what the rule is not for passes")
        with results.probe("cleanup"):
            need(TENANT not in [tenant["name"] for tenant in site.admin.tenants()], "something is left")
        return results.told(scope=kind)

    return Step(act)


def sg_port_security_policy(site: Site) -> Output:
    results = Results()
    with scene(site, client={}, target={}):
        with results.probe("create_virtual_interface") as evidence:
            overlay(site, TENANT, "back", subnet="10.1.0.0/24", more_subnets=[])
            site.vm("behind", TENANT, network="back")
            site.admin.wait(site.admin.attach_network("back", "target", TENANT))
            evidence["cards"] = cards = len(site.admin.vm("target", TENANT)["cards"])
            need(cards == 2, "it has no second card")
        with results.probe("apply_port_policy"):
            group(site, "policy", OUT, HTTPS, vm="target", network="back")
        with results.probe("allowed_port_permitted"):
            need(arrives(site, "behind", "target"), "the port that is listed does not pass")
        with results.probe("unlisted_port_blocked"):
            need(not arrives(site, "behind", "target", 80), "a port that is not listed passes")
        with results.probe("other_interface_unaffected"):
            need(arrives(site, "client", "target", 80), "the other card is shut too")
    with results.probe("cleanup"):
        need(TENANT not in [tenant["name"] for tenant in site.admin.tenants()], "something is left")
    return results.told()


def sg_policy_propagation(site: Site) -> Output:
    """Until ovn-northd has it in the database that hosts follow."""
    results, seconds = Results(), dict[str, Any]()
    with scene(site, client={}, target={}):
        group(site, "target", OUT, vm="target")
        for change, made, seen, wanted in (
            ("add", "create_probe_rule", "rule_observed", True),
            ("remove", "revoke_probe_rule", "removal_observed", False),
        ):
            began = time.monotonic()
            with results.probe(made):
                site.admin.change_group_rules("target", {change: [HTTPS]}, TENANT)
            with results.probe(seen):
                site.until(partial(_is, site, wanted), "it was not seen", 30.0)
                seconds[f"{change}_observed_seconds"] = round(time.monotonic() - began, 2)
    with results.probe("cleanup"):
        need(TENANT not in [tenant["name"] for tenant in site.admin.tenants()], "something is left")
    return results.told(target_rule_id=f"{TENANT}/target", **seconds)


def _is(site: Site, wanted: bool) -> bool:
    return arrives(site, "client", "target") == wanted


def storage_l3_routing(site: Site) -> Output:
    """The router of a network is on each host: nothing goes by way of another one."""
    results, names = Results(), ("first", "second", "third")
    addresses = dict(zip(names, ("10.0.0.9", "10.0.1.9", "10.0.1.10"), strict=True))
    with scene(site, **{name: {"addresses": {NETWORK: address}} for name, address in addresses.items()}):
        network = site.admin.network(NETWORK, TENANT)
        subnets = (network["subnet"], *network["more_subnets"])
        with results.probe("distinct_subnets", subnet_count=len(subnets)):
            need(len(set(subnets)) == 2, "it has not two subnets")
        pairs = [(one, other) for one in names for other in names if one != other]
        reached = [pair for pair in pairs if arrives(site, *pair, 2049)]
        with results.probe("all_to_all_reachable", pairs_tested=len(pairs), pairs_reachable=len(reached)):
            need(reached == pairs, "not every VM reaches every other one")
        with results.probe("cross_subnet_routing"):
            need(("first", "second") in reached, "nothing passes between its subnets")
        with results.probe("no_gateway_hop"):
            need(network["out"] is None, "it has a gateway")
    return results.told()


def subnet_config(site: Site) -> Output:
    """Subnets are over all hosts, so those of one zone are those of the other; zones are labels of hosts."""
    results, subnets = Results(), [f"10.0.{number}.0/24" for number in range(4)]
    hosts = list(islice(_candidates(site), 2))
    zones = dict(zip(hosts, ("isv-a", "isv-b"), strict=False))
    with site.tenant(TENANT):
        for host, zone in zones.items():
            site.admin.change_host(host, {"labels": {"zone": zone}})
        try:
            with results.probe("create_subnets"):
                overlay(site, TENANT, subnet=subnets[0], more_subnets=subnets[1:])
                network = site.admin.network(NETWORK, TENANT)
                need([network["subnet"], *network["more_subnets"]] == subnets, "it has other subnets")
            placed = list[tuple[str, str]]()
            with results.probe("subnets_available"):
                for number, subnet in enumerate(subnets):
                    at = {"addresses": {NETWORK: subnet.replace("0/24", "9")}, "host": hosts[number % 2]}
                    vm = site.vm(f"vm-{number}", TENANT, network=NETWORK, **at)
                    placed.append((vm["name"], zones[str(vm["host"])]))
                need(arrives(site, placed[0][0], placed[3][0]), "two of its subnets do not meet")
            azs = sorted({zone for _, zone in placed})
            with results.probe("az_distribution", azs=azs, az_count=len(azs)):
                need(len(azs) == 2, "its VMs are in one zone")
        finally:
            for host in zones:
                site.admin.change_host(host, {"labels": {"zone": None}})
    return results.told(subnets=[{"subnet_id": subnet, "cidr": subnet} for subnet in subnets])


def _candidates(site: Site) -> Iterator[str]:
    """Hosts that small VMs may be on."""
    for host in site.admin.hosts():
        try:
            site.admin.plan_vm(site.wish("probe", "default", host=host["name"]))
        except VgpuctlError:
            continue
        yield host["name"]


def peering_test(site: Site) -> Output:
    results, second = Results(), f"{TENANT}-second"
    with site.tenant(TENANT), site.tenant(second):
        with results.probe("create_vpc_a"):
            overlay(site, TENANT, "a", subnet="10.2.0.0/24", more_subnets=[])
        with results.probe("create_vpc_b"):
            overlay(site, second, "b", subnet="10.3.0.0/24", more_subnets=[])
        users = {tenant: site.token(f"{tenant}-user", tenant, "tenant-user")[1] for tenant in (TENANT, second)}
        with results.probe("create_peering"):
            asked = users[TENANT].describe_network("a", {"join": [f"{second}/b"]}, TENANT)
            need([peer["state"] for peer in asked["peers"]] == ["asked"], "it is joined without the other's consent")
        with results.probe("accept_peering"):
            users[second].describe_network("b", {"join": [f"{TENANT}/a"]}, second)
        for probe, name, tenant in (("add_routes", "a", TENANT), ("peering_active", "b", second)):
            with results.probe(probe):
                (peer,) = site.admin.network(name, tenant)["peers"]
                need(peer["state"] == "joined", f"it is {peer['state']}")
        users[TENANT].describe_network("a", {"leave": [f"{second}/b"]}, TENANT)
    return results.told(vpc_a={"id": f"{TENANT}/a"}, vpc_b={"id": f"{second}/b"})


def floating_ip_test(site: Site) -> Output:
    """Where the address leads, as the API says it; the change is in OVN when it answers."""
    results = Results()
    physical = site.environment.get("ISV_PHYSICAL_NETWORK", "physnet1")
    outside = {"name": OUTSIDE, "provider": physical, "subnet": "198.18.0.0/24", "gateway": "198.18.0.1",
               "addresses": "198.18.0.100-198.18.0.119"}  # fmt: skip
    site.admin.add_network(outside)
    try:
        with site.tenant(TENANT):
            overlay(site, TENANT, out=OUTSIDE)
            for name in ("a", "b"):
                site.vm(name, TENANT, network=NETWORK)
            address = ""
            with results.probe("allocate_eip") as evidence:
                evidence["public_ip"] = address = site.admin.create_floating_address({"tenant": TENANT})["address"]
            for made, seen, vm in (("associate_to_a", "verify_on_a", "a"), ("reassociate_to_b", "verify_on_b", "b")):
                began = time.monotonic()
                with results.probe(made) as evidence:
                    site.admin.attach_floating_address(address, {"vm": vm}, TENANT)
                    evidence["switch_seconds"] = round(time.monotonic() - began, 2)
                with results.probe(seen):
                    need(_leads_to(site) == [vm], "it leads elsewhere")
            with results.probe("verify_not_on_a"):
                need("a" not in _leads_to(site), "it leads to the first VM as well")
            site.admin.detach_floating_address(address, TENANT)
            site.admin.delete_floating_address(address, TENANT)
    finally:
        site.admin.delete_network(OUTSIDE)
    return results.told()


def _leads_to(site: Site) -> list[str | None]:
    return [each["vm"] for each in site.admin.floating_addresses(TENANT)]
