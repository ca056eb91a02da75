# SPDX-License-Identifier: Apache-2.0
"""Caps and budgets of power on hosts in memory: carried out, kept through losses, refused by name."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.metrics import pool_families
from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction
from orchestrator.core.actions.vgpu_settings import SetPowerLimit
from orchestrator.core.errors import Denied, InvalidInput, NotFound, Retryable, Unknown, VgpuctlError
from orchestrator.core.gpu.power import SITE, Budget, GpuPower
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot_rules import check_bounds
from orchestrator.reconcile.power import PowerKeeper
from orchestrator.services.hosts.power import PowerService, uses_of
from orchestrator.store.power import power_seen
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, plane_with
from tests.fakes.fake_gpu_settings import LIMITS
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import snapshot_of

LEAST, MOST = LIMITS
IDLE_W = 40.0
HOSTS = (T4_HOST, L40S_HOST, A100_HOST)


@dataclass
class Site:
    plane: ControlPlane
    loads: dict[tuple[str, str], float] = field(default_factory=dict)
    """What GPUs would take; the others idle."""

    def limits(self) -> dict[tuple[str, str], int]:
        """That GPUs have now, in watts."""
        machines = {host: self.plane.machine(host) for host in HOSTS}
        return {(host, gpu.address): gpu.power_limit or MOST for host in HOSTS for gpu in machines[host].gpus}

    def drawn(self, hosts: set[str]) -> dict[tuple[str, str], float]:
        limits = self.limits()
        return {key: min(limits[key], self.loads.get(key, IDLE_W)) for key in limits if key[0] in hosts}

    def keeper(self) -> PowerKeeper:
        return PowerKeeper(self.plane.store, self.plane.world.link.perform, self.drawn, self.plane.world.clock)

    def rounds(self, keeper: PowerKeeper, count: int = 4) -> None:
        """With what hosts show after each."""
        for _ in range(count):
            self.plane.world.clock.sleep(10)
            keeper.round()
            for host in HOSTS:
                self.plane.look(host, after_s=1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with plane_with(tmp_path, *HOSTS) as plane:
        for host in HOSTS:
            plane.look(host, after_s=1)
        yield Site(plane)


def first_gpu(site: Site, host: str) -> str:
    return site.plane.machine(host).gpus[0].address


def test_a_cap_is_carried_out_kept_after_the_driver_forgot_it_and_ended(site: Site) -> None:
    gpu, keeper = first_gpu(site, T4_HOST), site.keeper()
    site.plane.services.power.set_cap(T4_HOST, gpu, 200)
    site.rounds(keeper, 1)
    assert site.limits()[T4_HOST, gpu] == 200
    site.plane.machine(T4_HOST).gpus[0].power_limit = 0
    site.rounds(keeper, 2)
    assert site.limits()[T4_HOST, gpu] == 200
    (shown,) = site.plane.services.power.report().gpus
    assert (shown.cap_watts, shown.limit_watts) == (200, 200)
    site.plane.services.power.set_cap(T4_HOST, gpu, None)
    site.rounds(keeper, 1)
    assert site.plane.machine(T4_HOST).gpus[0].power_limit == 0
    assert site.plane.services.power.report().gpus == ()


def test_without_caps_and_budgets_nothing_is_sent_and_what_others_set_is_left(site: Site) -> None:
    site.plane.machine(T4_HOST).gpus[0].power_limit = 150
    site.rounds(site.keeper())
    assert site.limits()[T4_HOST, first_gpu(site, T4_HOST)] == 150


@pytest.mark.parametrize("watts", [LEAST - 1, MOST + 1])
def test_a_cap_outside_what_the_driver_takes_is_refused_with_the_bounds(site: Site, watts: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        site.plane.services.power.set_cap(T4_HOST, first_gpu(site, T4_HOST), watts)
    assert (caught.value.code, f"{LEAST} to {MOST} W" in caught.value.message) == ("gpu.power_limit_outside", True)


def test_a_budget_below_the_lowest_limits_of_its_gpus_or_of_nothing_is_refused_by_name(site: Site) -> None:
    lowest = LEAST * len(site.limits())
    with pytest.raises(InvalidInput) as caught:
        site.plane.services.power.set_budget(SITE, lowest - 1)
    assert (caught.value.code, caught.value.hint) == ("power.budget_too_low", f"give it {lowest} W or more")
    with pytest.raises(NotFound, match="rack 7"):
        site.plane.services.power.set_budget(Budget("rack", "7"), 10_000)
    with pytest.raises(NotFound):
        site.plane.services.power.set_budget(Budget("host", "nowhere"), 10_000)


@pytest.mark.parametrize(
    "told", [{"power_min_watts": MOST + 1}, {"power_min_watts": 0}, {"power_default_watts": 0}, {"power_max_watts": 1}],
    ids=str,
)  # fmt: skip
def test_limits_that_none_can_be_are_not_believed(site: Site, told: dict[str, Any]) -> None:
    gpu = snapshot_of(site.plane.machine(T4_HOST)).gpus[0]
    assert power_seen(gpu) is not None
    assert power_seen(replace(gpu, **told)) is None


def test_no_host_counts_more_than_any_gpu_takes(site: Site) -> None:
    gpu = snapshot_of(site.plane.machine(T4_HOST)).gpus[0]
    with pytest.raises(Unknown):
        check_bounds(replace(gpu, power_max_watts=4097))


def test_what_idles_lends_to_what_works_and_all_have_their_own_limits_again_without_the_budget(site: Site) -> None:
    keeper, gpus = site.keeper(), sorted(site.limits())
    budget = LEAST * (len(gpus) - 1) + MOST
    site.plane.services.power.set_budget(SITE, budget)
    site.loads = {gpus[0]: MOST}
    site.rounds(keeper)
    assert (site.limits()[gpus[0]], sum(site.limits().values())) == (MOST, budget)
    site.loads = {gpus[1]: MOST}
    site.rounds(keeper)
    assert site.limits()[gpus[1]] == MOST
    assert sum(site.limits().values()) <= budget
    use = site.plane.services.power.report().budgets[0]
    assert (use.scope, use.watts, use.gpus, use.fixed) == ("site", budget, len(gpus), 0)
    site.plane.services.power.set_budget(SITE, None)
    site.rounds(keeper)
    assert {gpu.power_limit for host in HOSTS for gpu in site.plane.machine(host).gpus} == {0}


def test_a_host_that_does_not_answer_keeps_what_it_was_granted_and_the_others_share_the_rest(site: Site) -> None:
    keeper, gpus = site.keeper(), sorted(site.limits())
    site.loads = dict.fromkeys(gpus, MOST)
    site.plane.services.power.set_budget(SITE, 250 * len(gpus))
    site.rounds(keeper)
    assert set(site.limits().values()) == {250}
    site.plane.machine(T4_HOST).away = 1_000
    site.rounds(keeper, 1)
    site.loads = {key: MOST if key[0] == L40S_HOST else IDLE_W for key in gpus}
    site.rounds(keeper)
    assert all(watts == 250 for (host, _), watts in site.limits().items() if host == T4_HOST)
    assert sum(site.limits().values()) <= 250 * len(gpus)
    assert all(watts > 250 for (host, _), watts in site.limits().items() if host == L40S_HOST)


@dataclass(frozen=True, kw_only=True)
class DrawingPower(PowerService):
    """It knows what GPUs of a site draw without readings."""

    site: Site

    def drawn(self, hosts: set[str]) -> dict[tuple[str, str], float]:
        return self.site.drawn(hosts)


def drawing(site: Site) -> DrawingPower:
    power = site.plane.services.power
    return DrawingPower(store=power.store, clock=power.clock, readings=power.readings, site=site)


def test_metrics_tell_of_budgets_that_are_exceeded_and_of_gpus_whose_host_is_silent(site: Site) -> None:
    power = drawing(site)
    services, gpus = replace(site.plane.services, power=power), sorted(site.limits())

    def told(name: str, *labels: str) -> float:
        families = {family.name: family for family in pool_families(services)}
        values = {tuple(one.labels.values()): one.value for one in families[name].samples}
        return values[labels]

    assert told("vgpuctl_power_budgets_exceeded", "site") == 0, "there is none"
    site.loads = dict.fromkeys(gpus, MOST)
    power.set_budget(SITE, 250 * len(gpus))
    assert told("vgpuctl_power_budgets_exceeded", "site") == 1, "nothing is limited yet"
    site.rounds(site.keeper())
    assert told("vgpuctl_power_budgets_exceeded", "site") == 0
    totals = [told("vgpuctl_power_watts", "site", what) for what in ("budget", "granted", "drawn")]
    assert totals == [250 * len(gpus)] * 3
    assert told("vgpuctl_power_gpus_silent", "site") == 0
    site.plane.machine(T4_HOST).away = 1_000
    site.rounds(site.keeper(), 1)
    assert told("vgpuctl_power_gpus_silent", "site") == len(site.plane.machine(T4_HOST).gpus)


def test_what_all_budgets_of_a_thousand_hosts_take_is_added_up_in_a_moment() -> None:
    def gpu(host: int, number: int) -> GpuPower:
        around = (Budget("host", f"h{host}"), Budget("rack", f"r{host // 4}"), SITE)
        return GpuPower(key=(f"h{host}", str(number)), budgets=around, least=200, most=700, counts=700, drawn=300.0)

    gpus = [gpu(host, number) for host in range(1000) for number in range(8)]
    budgets = dict.fromkeys((budget for gpu in gpus for budget in gpu.budgets), 1)
    began = time.process_time()
    uses = uses_of(budgets, gpus, {"h7"})
    assert time.process_time() - began < 2
    assert (len(uses), {use.gpus for use in uses}) == (1251, {8, 32, 8000})
    assert {use.name: use.silent for use in uses if use.silent} == {"h7": 8, "r1": 8, "": 8}


def test_all_gpus_of_a_host_are_told_of_with_cap_limit_and_draw(site: Site) -> None:
    power = drawing(site)
    first, *_ = (gpu.address for gpu in site.plane.machine(L40S_HOST).gpus)
    power.set_cap(L40S_HOST, first, LEAST)
    site.rounds(site.keeper())
    assert [row.gpu for row in power.report().gpus] == [first], "without a host those with a cap alone"
    rows = {row.gpu: (row.cap_watts, row.limit_watts, row.drawn_watts) for row in power.report(L40S_HOST).gpus}
    assert len(rows) == len(site.plane.machine(L40S_HOST).gpus)
    assert rows.pop(first) == (LEAST, LEAST, IDLE_W)
    assert set(rows.values()) == {(None, MOST, IDLE_W)}
    with pytest.raises(NotFound):
        power.report("nowhere")


def test_what_an_older_pass_sends_late_is_refused(site: Site) -> None:
    gpu = first_gpu(site, T4_HOST)
    with site.plane.store.begin() as tx:
        older = tx.power.begin_pass()
        host = tx.hosts.get(T4_HOST)
    site.plane.services.power.set_cap(T4_HOST, gpu, 200)
    site.rounds(site.keeper(), 1)
    late = FencingToken(site=site.plane.store.site, epoch=host.epoch, operation="power", attempt=older)
    with pytest.raises(Denied):
        site.plane.world.link.perform(host, SetPowerLimit(gpu=gpu, watts=MOST), late)


@dataclass
class Losing:
    """A link that loses requests and answers by chance, and looks at all limits after each."""

    site: Site
    chance: random.Random
    budgets: dict[Budget, int]
    within: bool = False
    performed: int = 0

    def perform(self, host: Host, action: HostAction, token: FencingToken) -> ActionResult:
        fate = self.chance.random()
        if fate < 0.15:
            raise Retryable("host.unreachable", "not sent")
        result = self._hosts.perform(host, action, token)
        self.performed += 1
        self.check()
        if fate < 0.3:
            raise Unknown("agent.channel_cut", "the answer was lost")
        return result

    @property
    def _hosts(self) -> FakeHosts:
        return self.site.plane.hosts

    def check(self) -> None:
        """Once they are within their budgets, they stay there."""
        limits = self.site.limits()
        over = [
            budget
            for budget, watts in self.budgets.items()
            if sum(limit for (host, _), limit in limits.items() if budget.name in {"", host}) > watts
        ]
        assert not (self.within and over), over
        self.within = not over


@pytest.mark.parametrize("seed", range(3))
def test_no_budget_is_exceeded_at_any_moment_whatever_is_lost_or_dies(site: Site, seed: int) -> None:
    chance, gpus = random.Random(seed), sorted(site.limits())
    budgets = {SITE: 200 * len(gpus), Budget("host", L40S_HOST): 260 * len(site.plane.machine(L40S_HOST).gpus)}
    for budget, watts in budgets.items():
        site.plane.services.power.set_budget(budget, watts)
    losing = Losing(site, chance, budgets)

    def keeper() -> PowerKeeper:
        return PowerKeeper(site.plane.store, losing.perform, site.drawn, site.plane.world.clock)

    one, other = keeper(), keeper()
    for _ in range(60):
        site.loads[chance.choice(gpus)] = chance.uniform(IDLE_W, MOST)
        site.plane.world.clock.sleep(chance.uniform(1, 20))
        with suppress(VgpuctlError):
            (one if chance.random() < 0.7 else other).round()
        if chance.random() < 0.1:
            one = keeper()  # a controller died; nobody knows what was confirmed last
        if chance.random() < 0.5:
            site.plane.look(chance.choice(HOSTS), after_s=1)
        losing.check()
    assert losing.within
    assert losing.performed > 30
