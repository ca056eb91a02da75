# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.contract.ovn_server NORTHBOUND``: as plane_server.py, of a site that has OVN and one host."""

from __future__ import annotations

import sys

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.client.location import state_directory
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.provider_networks import NewProviderNetwork
from orchestrator.core.vms.network import Network
from tests.contract.api.plane_server import serve
from tests.fakes.control_plane import T4_HOST, control_plane


def main() -> None:
    state = state_directory()
    state.mkdir(parents=True, exist_ok=True)
    plane = control_plane(state, northbound=OvnNorthbound(endpoints=(sys.argv[1],), trust=lambda: None))
    plane.machine(T4_HOST).bridges = (Bridge(name="br-int", kind="openvswitch"),)
    plane.add_host(T4_HOST)
    outside = NewProviderNetwork(
        physical="physnet1", vlan=None, subnet="192.0.2.0/24", gateway="192.0.2.1", addresses="192.0.2.100-192.0.2.199"
    )
    with plane.store.begin() as tx:
        tx.networks.add(Network(name="outside", overlay=outside.checked(plane.world.ids.new_uuid())))
    serve(state, plane)


if __name__ == "__main__":
    main()
