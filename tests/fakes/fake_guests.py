# SPDX-License-Identifier: Apache-2.0
"""Guests that live in memory: what was run in them stays there, and a second time finds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.errors import NotFound, VgpuctlError
from orchestrator.core.gpu.licence import GuestLicence
from orchestrator.core.guest.guest import Guest, GuestRecord, GuestRun, WantedRoles
from orchestrator.core.guest.settings import SettingValue, check_roles, check_secrets, check_settings
from orchestrator.core.vms.vm import Vm
from orchestrator.services.guests.guests import NONE
from orchestrator.services.messages import Started
from orchestrator.sim.guests import ran
from tests.fakes.fake_host import FakeHosts


class HasVms(Protocol):
    vms: dict[tuple[str, str], Vm]


@dataclass
class FakeGuestService:
    """services/guests/guests of VMs in whose guests nothing was ever run."""

    world: HasVms

    def get(self, tenant: str, name: str) -> GuestRecord:
        return GuestRecord(vm=self._known(tenant, name).id, host_key=None)

    def licence(self, tenant: str, name: str) -> GuestLicence:
        self._known(tenant, name)
        return GuestLicence(state="unknown")

    def provision(
        self,
        tenant: str,
        name: str,
        roles: tuple[str, ...],
        *,
        new_host_key: bool = False,
        settings: Mapping[str, SettingValue] = NONE,
        secrets: Mapping[str, str] = NONE,
    ) -> Started:
        check_settings(check_roles(roles), settings)
        check_secrets(roles, secrets)
        return Started(operation=None, name=self._known(tenant, name).spec.name, existing=new_host_key)

    def _known(self, tenant: str, name: str) -> Vm:
        if (tenant, name) not in self.world.vms:
            raise NotFound("vm.unknown", f"there is no VM {name[:60]!a}", hint="'vgpuctl list-vms' shows them")
        return self.world.vms[tenant, name]


@dataclass
class FakeGuests:
    """Implements ports.guests.Guests. ``answers``: what each contact from now on ends with, the last one for all that
    follow; ``fails``: what a role ends with."""

    hosts: FakeHosts
    key: str = "ssh-ed25519 GUEST"
    answers: list[VgpuctlError | None] = field(default_factory=lambda: [None])
    fails: dict[str, VgpuctlError] = field(default_factory=dict)
    ran: dict[str, list[str]] = field(default_factory=dict)
    drivers: list[str | None] = field(default_factory=list)
    toolkits: list[str | None] = field(default_factory=list)
    wanted: list[WantedRoles] = field(default_factory=list)
    seen: list[Guest] = field(default_factory=list)

    def reach(self, guest: Guest, stop: Callable[[], bool]) -> GuestRun:
        self.seen.append(guest)
        error = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return GuestRun(host_key=self.key, error=error)

    def provision(
        self, guest: Guest, wanted: WantedRoles, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        self.seen.append(guest)
        self.wanted.append(wanted)
        self.drivers.append(None if wanted.driver is None else wanted.driver.version)
        self.toolkits.append(wanted.cuda)
        results = []
        for role in wanted.roles:
            progress(role)
            if stop():
                break
            there = self.ran.setdefault(guest.vm, [])
            result = ran(role, guest.run, 1_800_000_000.0)
            if role in self.fails:
                results.append(replace(result, state="failed", failed_task=role))
                return GuestRun(host_key=self.key, results=tuple(results), error=self.fails[role])
            results.append(result if role in there else replace(result, state="changed", tasks_changed=1))
            self.hosts.does(f"run {role}", partial(there.append, role))
        facts = GuestFacts(driver="580.95.05") if "guest_check" in wanted.roles else None
        versions = {"cuda_toolkit": "12.8"} if "guest_cuda" in wanted.roles else {}
        return GuestRun(host_key=self.key, results=tuple(results), facts=facts, versions=versions)
