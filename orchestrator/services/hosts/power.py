# SPDX-License-Identifier: Apache-2.0
"""Caps and budgets of power, as an operator says them. Who carries them out: reconcile/power.py."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.gpu.power import SITE, Budget, GpuPower, lacking, within
from orchestrator.core.hosts.host import Host
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.hosts.gpu_health import check_ours
from orchestrator.services.readings.readings import ReadingService
from orchestrator.store.database import Store
from orchestrator.store.power import Known, KnownPower
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class PowerUse:
    """Of a budget; ``watts`` None: of all GPUs of a site without one."""

    scope: str
    """host, rack or site."""
    name: str
    """Of the host or rack; empty: of the site."""
    watts: int | None
    """That its GPUs may take together; None: as much as they can."""
    granted_watts: int
    """What they may take now, by their limits."""
    drawn_watts: int
    """What they take, of those that tell."""
    gpus: int
    """How many lie within it."""
    fixed: int
    """Of those, how many keep the limit that they have: their host does not answer, or a VM has all of them."""
    silent: int
    """Of the fixed, how many whose host does not answer: which limit they have is not known."""


@dataclass(frozen=True, kw_only=True)
class LimitedGpu:
    """In watts."""

    host: str
    """Name of the host."""
    gpu: str
    """PCI address."""
    cap_watts: int | None
    """That an operator gave it; None: none."""
    limit_watts: int | None
    """That it has, as last observed; None: its driver does not have it."""
    drawn_watts: int | None
    """What it takes now; None: nothing tells."""


@dataclass(frozen=True, kw_only=True)
class PowerReport:
    budgets: tuple[PowerUse, ...]
    gpus: tuple[LimitedGpu, ...]


@dataclass(frozen=True, kw_only=True)
class PowerService:
    store: Store
    clock: Clock
    readings: ReadingService

    def set_cap(self, host: str, gpu: str, watts: int | None) -> None:
        """None: its driver's own limit.

        :raises NotFound: ``host.unknown``, ``gpu.not_ours``
        :raises Conflict: ``gpu.no_power_limit``; :raises InvalidInput: ``gpu.power_limit_outside``"""
        with self.store.begin() as tx:
            check_ours(tx.hosts.get(host), gpu)
            known = tx.power.of_host(host).get(gpu)
            if known is None or (watts is not None and known.now is None):
                raise Conflict(
                    "gpu.no_power_limit",
                    f"the power of GPU {gpu} of host {host} cannot be limited",
                    hint=f"its driver lets nobody, or a VM has all of it: 'vgpuctl gpu show {host} {gpu}'",
                )
            if watts is not None and not known.least <= watts <= known.most:
                raise InvalidInput(
                    "gpu.power_limit_outside",
                    f"GPU {gpu} of host {host} takes limits of {known.least} to {known.most} W",
                    hint=f"'vgpuctl power cap {host} {gpu} {known.least}' is the lowest",
                )
            tx.power.put({(host, gpu): replace(known, cap=watts)})
            outcome = "its own" if watts is None else f"{watts} W"
            tx.audit.append(
                at=self.clock.now(), actor=actor(), action="cap_gpu", subject=f"{host}/{gpu}", outcome=outcome
            )  # fmt: skip

    def set_budget(self, budget: Budget, watts: int | None) -> None:
        """None: there is none any more.

        :raises NotFound: ``host.unknown``, ``power.no_gpus``; :raises InvalidInput: ``power.budget_too_low``"""
        with self.store.begin() as tx:
            if watts is not None:
                self._check(tx, budget, watts)
            tx.power.put_budget(budget, watts)
            outcome, subject = "none" if watts is None else f"{watts} W", f"{budget.scope}/{budget.name}".rstrip("/")
            tx.audit.append(at=self.clock.now(), actor=actor(), action="power_budget", subject=subject, outcome=outcome)

    def _check(self, tx: Transaction, budget: Budget, watts: int) -> None:
        if budget.scope == "host":
            tx.hosts.get(budget.name)
        gpus = powers_of(tx.hosts.list(), tx.power.all(), {budget: watts}, {})
        its = [gpu for gpu in gpus if budget in gpu.budgets]
        if not its:
            raise NotFound(
                "power.no_gpus",
                f"{words(budget)} has no GPU whose power can be limited",
                hint="'vgpuctl gpu racks' shows racks, 'vgpuctl power show' of how many GPUs the power can be limited",
            )
        if short := lacking(its, watts):
            raise InvalidInput(
                "power.budget_too_low",
                f"the {len(its)} GPUs of {words(budget)} take {watts + short} W at their lowest limits",
                hint=f"give it {watts + short} W or more",
            )

    def drawn(self, hosts: set[str]) -> dict[tuple[str, str], float]:
        """What GPUs of these hosts take now, by host and PCI address, of those that tell."""
        drawn = ((key, reading.get("gpu_power_watts")) for key, reading in self.readings.of_gpus(hosts).items())
        return {key: watts for key, watts in drawn if watts is not None}

    def report(self, host: str | None = None) -> PowerReport:
        """Of each budget, and of the site; GPUs with a cap, or all of a host whose power can be limited.

        :raises NotFound: ``host.unknown``"""
        with self.store.read() as tx:
            if host is not None:
                tx.hosts.get(host)
            budgets, known, hosts = tx.power.budgets(), tx.power.all(), tx.hosts.list()
        drawn = self.drawn({name for name, _ in known})
        gpus = powers_of(hosts, known, {SITE: 0, **budgets}, drawn)
        silent = {each.name for each in hosts if _is_silent(each)}
        shown: dict[Budget, int | None] = {SITE: None, **budgets}
        limited = (
            LimitedGpu(
                host=key[0], gpu=key[1], cap_watts=power.cap, limit_watts=power.now,
                drawn_watts=round(drawn[key]) if key in drawn else None,
            )
            for key, power in known.items()
            if (power.cap is not None if host is None else key[0] == host)
        )  # fmt: skip
        return PowerReport(budgets=uses_of(shown, gpus, silent), gpus=tuple(limited))


def words(budget: Budget) -> str:
    return "the site" if budget == SITE else f"{budget.scope} {budget.name}"


def uses_of(
    budgets: Mapping[Budget, int | None], gpus: Iterable[GpuPower], silent: Collection[str]
) -> tuple[PowerUse, ...]:
    """``gpus`` name no other budget. ``silent``: hosts. At each scrape: all GPUs are gone through once."""
    members = within(gpus, budgets)
    return tuple(_use(budget, budgets[budget], members[budget], silent) for budget in sorted(budgets))


def _use(budget: Budget, watts: int | None, gpus: list[GpuPower], silent: Collection[str]) -> PowerUse:
    return PowerUse(
        scope=budget.scope, name=budget.name, watts=watts, granted_watts=sum(gpu.counts for gpu in gpus),
        drawn_watts=round(sum(gpu.drawn or 0.0 for gpu in gpus)), gpus=len(gpus),
        fixed=sum(gpu.fixed for gpu in gpus), silent=sum(gpu.key[0] in silent for gpu in gpus),
    )  # fmt: skip


def _is_silent(host: Host) -> bool:
    return host.state != "ready" or host.restored == "unseen"


def powers_of(
    hosts: Iterable[Host], known: Known, budgets: Mapping[Budget, int], drawn: Mapping[tuple[str, str], float]
) -> list[GpuPower]:
    """All GPUs whose power can be limited, as budgets see them."""
    by_name = {host.name: host for host in hosts}
    return [_power_of(by_name[key[0]], key[1], power, budgets, drawn.get(key)) for key, power in known.items()]


def _power_of(host: Host, gpu: str, power: KnownPower, budgets: Mapping[Budget, int], drawn: float | None) -> GpuPower:
    around = (Budget("host", host.name), Budget("rack", dict(host.labels).get("rack") or ""), SITE)
    return GpuPower(
        key=(host.name, gpu),
        budgets=tuple(budget for budget in around if budget in budgets),
        least=power.least,
        most=power.cap or power.default,
        counts=power.most if power.now is None else max(power.now, power.granted or 0),
        drawn=drawn,
        fixed=power.now is None or _is_silent(host),
    )
