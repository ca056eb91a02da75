# SPDX-License-Identifier: Apache-2.0
"""A site without OVN."""

from __future__ import annotations

from typing import cast

from cryptography.fernet import Fernet

from orchestrator.adapters.state.ovn_authority import OvnAuthority
from orchestrator.core.ovn import NO_HOSTS
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.services.changes_in_ovn import ChangesInOvn
from orchestrator.services.drivers.locks import DriverLockService
from orchestrator.services.drivers.provisioning import ProvisioningService
from orchestrator.services.floating_addresses import FloatingAddressService
from orchestrator.services.hosts.gpu_health import GpuHealthService
from orchestrator.services.hosts.gpus import CardService
from orchestrator.services.network_driver import Engines, NetworkDriverService
from orchestrator.services.network_paths import NetworkPathService
from orchestrator.services.networks import NetworkService
from orchestrator.services.provider_networks import ProviderNetworkService
from orchestrator.services.security_groups import SecurityGroupService
from orchestrator.services.vms.network_cards import NetworkCards
from orchestrator.store.database import Store


def nat_alone(clock: Clock) -> Engines:
    return Engines(authority=OvnAuthority(Fernet.generate_key(), clock))


def network_driver(store: Store, clock: Clock) -> NetworkDriverService:
    """Of such a site."""
    return NetworkDriverService(store=store, clock=clock, engines=nat_alone(clock))


def provisioning(store: Store, clock: Clock, ids: Ids, engine: Engine) -> ProvisioningService:
    """Of such a site, whose hosts are in memory."""
    return ProvisioningService(store=store, clock=clock, ids=ids, engine=engine, ovn=NO_HOSTS, inspector=None)


def of_gpus(
    store: Store, clock: Clock, ids: Ids, engine: Engine
) -> tuple[GpuHealthService, CardService, DriverLockService]:
    """Of no GPU that is ill, and no locked driver."""
    return (
        GpuHealthService(store=store, clock=clock),
        CardService(store=store, engine=engine, clock=clock, ids=ids),
        DriverLockService(store=store, clock=clock),
    )


def security(
    store: Store, clock: Clock, ids: Ids, engine: Engine, networks: object
) -> tuple[SecurityGroupService, NetworkPathService, NetworkCards]:
    """Groups of such a site, who reaches whom there, and cards of VMs on its ``networks``."""
    groups = SecurityGroupService(store=store, clock=clock, in_ovn=ChangesInOvn(store=store, northbound=None))
    cards = NetworkCards(store=store, engine=engine, networks=cast(NetworkService, networks), clock=clock, ids=ids)
    return groups, NetworkPathService(store=store, tracer=None, overlay=None), cards


def leading_outside(store: Store, clock: Clock, ids: Ids) -> tuple[ProviderNetworkService, FloatingAddressService]:
    """What such a site has of it: nothing."""
    in_ovn = ChangesInOvn(store=store, northbound=None)
    provided = ProviderNetworkService(store=store, clock=clock, ids=ids, overlay=None)
    return provided, FloatingAddressService(store=store, clock=clock, ids=ids, in_ovn=in_ovn)
