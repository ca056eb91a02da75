# SPDX-License-Identifier: Apache-2.0
"""What users and operators ask for, drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.api.use_cases import Services
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.units import GIB
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.services.messages import AddHost, AdoptVm, CreateVm
from orchestrator.sim.in_memory import fingerprint_of
from tests.simulated.schedule import Schedule

TENANT = "default"
IMAGE = "guest"
SECRET = "planted-secret"

_RTX = "NVIDIA RTX Pro 6000 Blackwell DC"
IN_INSTANCES = (
    "GRID A100D-1-10C", "GRID A100D-2-20C", "GRID A100D-3-40C", "GRID A100D-20C",
    f"{_RTX}-1-8Q", f"{_RTX}-1-12Q", f"{_RTX}-1-24Q", f"{_RTX}-2-48Q", f"{_RTX}-24Q",
)  # fmt: skip
"""Profiles of an A100 and an RTX PRO 6000 in MIG mode, and of each in time slices."""

_OF_OTHERS = 0.2
"""How often a request is about a domain that somebody else made."""
_URGENT = {"urgent0": "GRID T4-16Q", "urgent1": "GRID T4-16Q", "urgent2": "NVIDIA L40S-48Q"}
"""Names and profiles of VMs that are more important than all others; each takes a whole GPU."""


@dataclass(frozen=True)
class Users:
    """``names``: VMs they think of. ``profiles``: what they ask for. ``spare``: hosts that come and go.
    ``by_hand``: (address, name) of the domains that somebody else made; None: nobody does, and no lease ends.
    ``urgent``: some ask for VMs for which others are stopped."""

    schedule: Schedule
    names: tuple[str, ...]
    profiles: tuple[str, ...]
    spare: tuple[str, ...]
    by_hand: Sequence[tuple[str, str]] | None
    urgent: bool = False

    def one_request(self, services: Services) -> None:
        """In a fiber: one request of somebody, whatever the answer."""
        draw = self.schedule.random
        asks = _ASKS if self.by_hand is None else (*_ASKS, *_OF_LEASES_AND_OTHERS)
        asks = (*asks, *_URGENTLY) if self.urgent else asks
        ask = draw.choices([ask for ask, _ in asks], [weight for _, weight in asks])[0]
        name = self._name()
        said = "accepted"
        try:
            ask(self, services, name)
        except VgpuctlError as error:
            said = error.code
        self.schedule.note(f"user {ask.__name__.strip('_')} {name}: {said}")

    def _name(self) -> str:
        draw = self.schedule.random
        made = [name for _, name in self.by_hand or ()]
        return draw.choice(made if made and draw.random() < _OF_OTHERS else self.names)

    def wish(self, name: str) -> CreateVm:
        """The same for the same name in one run, so that asking twice means the same VM."""
        draw = random.Random(name)
        return CreateVm(
            name=name,
            tenant=TENANT,
            profile=self.profiles[draw.randrange(len(self.profiles))],
            image=IMAGE,
            vcpus=draw.choice((1, 2, 4)),
            memory_mib=draw.choice((512, 1024, 4096)),
            disk_bytes=GIB,
            user_data=f"#cloud-config\npassword: {SECRET}\n",
            start=draw.random() < 0.8,
            end=WantedEnd(after_s=None if self.by_hand is None else draw.choice((None, None, 60, 75, 3000))),
        )


def _create(users: Users, services: Services, name: str) -> None:
    services.vms.create(users.wish(name))


def _create_and_cancel(users: Users, services: Services, name: str) -> None:
    operation = services.vms.create(users.wish(name)).operation
    users.schedule.sleep(users.schedule.random.choice((0.1, 0.3, 1.0)) * users.schedule.random.random())
    if operation is not None:
        services.operations.cancel(operation)


def _create_and_delete(users: Users, services: Services, name: str) -> None:
    services.vms.create(users.wish(name))
    users.schedule.sleep(users.schedule.random.choice((0.1, 0.3, 3.0)) * users.schedule.random.random())
    services.vms.delete(TENANT, name)


def _create_urgent(users: Users, services: Services, _: str) -> None:
    name = users.schedule.random.choice(list(_URGENT))
    services.vms.create(replace(users.wish(name), profile=_URGENT[name], priority="high", preempt=True, start=True))


def _create_urgent_and_cancel(users: Users, services: Services, name: str) -> None:
    _create_urgent(users, services, name)
    users.schedule.sleep(users.schedule.random.random())
    _cancel(users, services, name)


def _delete_urgent(users: Users, services: Services, _: str) -> None:
    services.vms.delete(TENANT, users.schedule.random.choice(list(_URGENT)))


def _delete(_: Users, services: Services, name: str) -> None:
    services.vms.delete(TENANT, name)


def _delete_twice(_: Users, services: Services, name: str) -> None:
    services.vms.delete(TENANT, name)
    services.vms.delete(TENANT, name)


def _start(_: Users, services: Services, name: str) -> None:
    services.vms.start(TENANT, name)


def _stop(_: Users, services: Services, name: str) -> None:
    services.vms.stop(TENANT, name)


def _extend(users: Users, services: Services, name: str) -> None:
    services.vms.extend(TENANT, name, WantedEnd(after_s=users.schedule.random.choice((70, 7200))))


def _extend_and_start(users: Users, services: Services, name: str) -> None:
    _extend(users, services, name)
    services.vms.start(TENANT, name)


def _adopt(users: Users, services: Services, _: str) -> None:
    if users.by_hand:
        address, name = users.schedule.random.choice(users.by_hand)
        host = address.partition(".")[0]
        services.findings.observe(host)
        services.adoption.adopt(AdoptVm(host=host, domain=name, tenant=TENANT))


def _adopt_and_cancel(users: Users, services: Services, name: str) -> None:
    _adopt(users, services, name)
    users.schedule.sleep(users.schedule.random.random())
    _cancel(users, services, name)


def _cancel(users: Users, services: Services, _: str) -> None:
    running = services.operations.list(unfinished=True, limit=100)
    if running:
        services.operations.cancel(users.schedule.random.choice(running).id)


def _add_host(users: Users, services: Services, _: str) -> None:
    if users.spare:
        name = users.schedule.random.choice(users.spare)
        address = f"{name}.test"
        services.hosts.add(
            AddHost(name=name, address=address, provisioning_key="key", fingerprint=fingerprint_of(address))
        )


def _remove_host(users: Users, services: Services, _: str) -> None:
    if users.spare:
        services.hosts.remove(users.schedule.random.choice(users.spare))


_ASKS: tuple[tuple[Callable[[Users, Services, str], None], float], ...] = (
    (_create, 0.35),
    (_create_and_cancel, 0.1),
    (_create_and_delete, 0.07),
    (_delete, 0.1),
    (_delete_twice, 0.04),
    (_start, 0.1),
    (_stop, 0.1),
    (_cancel, 0.06),
    (_add_host, 0.06),
    (_remove_host, 0.04),
)
_OF_LEASES_AND_OTHERS: tuple[tuple[Callable[[Users, Services, str], None], float], ...] = (
    (_extend, 0.05),
    (_extend_and_start, 0.05),
    (_adopt, 0.12),
    (_adopt_and_cancel, 0.03),
)
_URGENTLY: tuple[tuple[Callable[[Users, Services, str], None], float], ...] = (
    (_create_urgent, 0.6),
    (_create_urgent_and_cancel, 0.15),
    (_delete_urgent, 0.35),
)
