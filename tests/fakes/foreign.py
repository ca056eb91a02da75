# SPDX-License-Identifier: Apache-2.0
"""Domains and vGPUs that somebody made on a host without asking us."""

from __future__ import annotations

from tests.fakes.fake_machine import FakeMachine

DOMAIN_UUID = "7d6f0c52-8f6e-4b39-9f63-6b6c8f0f3a10"
MDEV_UUID = "3c1c2f90-0f9e-4a6e-b3a5-2a1f7f1f9e21"

MDEV_SOURCE = f'<address uuid="{MDEV_UUID}"/>'


def domain_xml(*sources: str, name: str = "byhand", uuid: str = DOMAIN_UUID, more: str = "") -> str:
    """``more``: other parts of the definition."""
    hostdevs = "".join(f"<hostdev><source>{source}</source></hostdev>" for source in sources)
    return (
        f"<domain><name>{name}</name><uuid>{uuid}</uuid><memory>4096</memory><vcpu>3</vcpu>{more}"
        f"<devices>{hostdevs}</devices></domain>"
    )


def pci_source(address: str) -> str:
    bus, slot, function = address[5:7], address[8:10], address[11:]
    return f'<address domain="0x0000" bus="0x{bus}" slot="0x{slot}" function="0x{function}"/>'


def foreign_domain(machine: FakeMachine, xml: str, *, running: bool = True, uuid: str = DOMAIN_UUID) -> None:
    machine.domains[uuid] = (xml, running)
    machine.foreign.add(uuid)


def with_mdev(machine: FakeMachine, *, type_name: str = "GRID T4-2Q", running: bool = True, gpu: int = 0) -> None:
    """``byhand`` runs with a mediated device."""
    machine.mdevs[MDEV_UUID] = (machine.gpus[gpu].address, type_name, None)
    foreign_domain(machine, domain_xml(MDEV_SOURCE), running=running)


def with_function(machine: FakeMachine, *, type_name: str = "NVIDIA L40S-12Q", number: int = 2) -> str:
    """``byhand`` runs with a typed virtual function; its address."""
    function = machine.gpus[0].function_addresses()[number]
    machine.vf_types[function] = (type_name, None)
    foreign_domain(machine, domain_xml(pci_source(function)))
    return function


def with_functions(machine: FakeMachine, *, type_name: str = "NVIDIA L40S-12Q") -> tuple[str, ...]:
    """``byhand`` runs with three typed virtual functions: two of the first GPU and one of the second."""
    first, second = machine.gpus[0].function_addresses(), machine.gpus[1].function_addresses()
    functions = (first[3], first[2], second[2])
    machine.vf_types.update(dict.fromkeys(functions, (type_name, None)))
    foreign_domain(machine, domain_xml(*(pci_source(one) for one in functions)))
    return functions
