# SPDX-License-Identifier: Apache-2.0
"""What an observation says of the health of a host's GPUs, written in its transaction: placement never sees one without
the other."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Final

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.gpu.health import FUNCTIONS, MISSING, SEVERAL, GpuFault, GpuSignal, faults_of
from orchestrator.core.gpu.health_states import (
    BREAKER_WITHIN_S,
    CLOSED,
    Breaker,
    GpuHealth,
    TenantWord,
    is_new_fall,
    next_health,
    trips,
    with_function,
    with_word,
)
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.vm import Vm
from orchestrator.store.transaction import Transaction

ACTOR: Final = "health"
MAX_FUNCTIONS: Final = 256
"""Of one GPU of which anything is remembered: a host that lies fills no table."""


def judge_gpus(tx: Transaction, host: Host, snapshot: HostSnapshot, now: float) -> None:
    """Bring each managed GPU, and each of their virtual functions, into the state that ``snapshot`` means. ``host``: as
    it is stored now."""
    host = _with_functions(tx, host, snapshot, now)
    of_site: _Falls | None = None
    unreadable = {gpu.address for gpu in snapshot.gpus if gpu.problems}
    for address in host.managed_gpus:
        faults, before = gpu_faults(tx, host, snapshot, address), host.health_of(address)
        if not faults and before is None:
            continue
        falls = is_new_fall(before, faults)
        if before is not None and address in unreadable and not falls:
            continue  # what is not told of it now need not be over; nothing is placed on it meanwhile
        may_close = tx.gpu_health.breaker().opened is None
        if may_close and falls:
            of_site = of_site or _Falls(tx, now)
            may_close = of_site.may_close(tx.gpu_health.model(host.name, address), before)
        after = next_health(before, faults, now, may_close=may_close)
        if after != before:
            _put(tx, host, address, address, after, now)


def _with_functions(tx: Transaction, host: Host, snapshot: HostSnapshot, now: float) -> Host:
    """As it is stored once each virtual function is judged by what is told of it alone. What cannot be read of a GPU
    need not be over."""
    for gpu in snapshot.gpus:
        if gpu.address not in host.managed_gpus or gpu.problems:
            continue
        known = (host.health_of(gpu.address) or GpuHealth()).functions
        of_gpu = {part.address for part in gpu.parents if part.is_vf} & {signal.function for signal in gpu.signals}
        for function in sorted(of_gpu | {address for address, _ in known[:MAX_FUNCTIONS]}):
            before = host.health_of(function)
            may_close = tx.gpu_health.breaker().opened is None
            after = next_health(before, gpu_faults(tx, host, snapshot, function), now, may_close=may_close)
            if after != before:
                _put(tx, host, gpu.address, function, after, now)
                host = tx.hosts.get(host.name)
    return host


def gpu_faults(tx: Transaction, host: Host, snapshot: HostSnapshot, address: str) -> tuple[GpuFault, ...]:
    """Of a GPU, or of one of its virtual functions, the worst first."""
    signals = signals_of(host, snapshot, address)
    if not signals:
        return ()
    several = any(len(signal.pids) >= SEVERAL for signal in signals)
    vms = len(users_of_gpu(tx, host.name, address)) if several else 0
    return faults_of(signals, shipped().signal_meanings, vms=vms)


def signals_of(host: Host, snapshot: HostSnapshot, address: str) -> tuple[GpuSignal, ...]:
    """All that is told of a GPU and not of one virtual function of it alone, or of that function."""
    if address not in host.managed_gpus:
        return tuple(signal for gpu in snapshot.gpus for signal in gpu.signals if signal.function == address)
    seen = next((gpu for gpu in snapshot.gpus if gpu.address == address), None)
    of_gpu = [GpuSignal(name=MISSING)] if seen is None else [signal for signal in seen.signals if not signal.function]
    health = host.health_of(address) or GpuHealth()
    # What a person has closed, or a rule for its relapses, outlasts every reset: it is no fault of its GPU.
    unfit = [function for function, its in health.functions if its.state == "unfit"]
    if len(unfit) >= SEVERAL:
        of_gpu.append(GpuSignal(name=FUNCTIONS, text=", ".join(unfit[:SEVERAL])))
    return (*of_gpu, *(word.signal for word in health.words))


def hear_tenant(tx: Transaction, vm: Vm, text: str, now: float) -> None:
    """Its tenant says at its deletion that the GPUs which it has, or had last, were bad: they are on watch, at once
    where their host has been observed. One that is no more in a host of ours is let be."""
    host, snapshot = tx.hosts.get(vm.host), tx.hosts.snapshot(vm.host)
    word = TenantWord(tenant=vm.spec.tenant, text=text, at=now)
    for gpu in dict.fromkeys(device.gpu for device in vm.devices):
        if gpu not in host.managed_gpus:
            continue
        heard = with_word(host.health_of(gpu), word)
        if heard is not None:
            tx.gpu_health.put(host.name, gpu, heard, changed=False)
        outcome = f"{'' if heard else 'counted before today: '}{vm.full_name}: {text}"
        tx.audit.append(at=now, actor=ACTOR, action="tenant_word", subject=f"{host.name}/{gpu}", outcome=outcome)
    if snapshot is not None:
        judge_gpus(tx, tx.hosts.get(host.name), snapshot, now)


class _Falls:
    """What the breaker counts: read once for a host, as all that is remembered of ill GPUs is looked through."""

    def __init__(self, tx: Transaction, now: float) -> None:
        self._tx, self._now, self._breaker = tx, now, tx.gpu_health.breaker()
        self._since = max(now - BREAKER_WITHIN_S, self._breaker.reset)

    @cached_property
    def _fell(self) -> Counter[str | None]:
        return self._tx.gpu_health.falls(self._since)

    @cached_property
    def _of(self) -> Counter[str | None]:
        return self._tx.gpu_health.models()

    def may_close(self, model: str | None, before: GpuHealth | None) -> bool:
        """False: this fall is one too many of the site's GPUs or of its model's; then the breaker is open."""
        if before is None or max(before.falls, default=0.0) <= self._since:  # else it is one of them
            self._fell[model] += 1
        fell, of = self._fell, self._of
        for whose, fallen, total in (("the site", fell.total(), of.total()), (model, fell[model], of[model])):
            if whose is not None and trips(fallen, total):
                why = f"{fallen} of {total} GPUs of {whose} became unfit within an hour"
                self._tx.gpu_health.put_breaker(Breaker(opened=self._now, why=why, reset=self._breaker.reset))
                self._tx.audit.append(at=self._now, actor=ACTOR, action="open_breaker", subject="health", outcome=why)
                return False
        return True


def _put(tx: Transaction, host: Host, gpu: str, address: str, after: GpuHealth | None, now: float) -> None:
    """``address``: of the GPU or of a virtual function of it. ``host``: as it is stored now."""
    before = host.health_of(address)
    was = "healthy" if before is None else before.state
    state = "healthy" if after is None else after.state
    put_health(tx, host, gpu, address, after, changed=was != state)
    if after is not None and state in CLOSED and was != state:
        users = ", ".join(users_of_gpu(tx, host.name, address)) or "no VM"  # for who asks whose results may be wrong
        outcome = f"{after.cause}; on it: {users}"
        tx.audit.append(at=now, actor=ACTOR, action=f"gpu_{state}", subject=f"{host.name}/{address}", outcome=outcome)


def users_of_gpu(tx: Transaction, host: str, gpu: str) -> tuple[str, ...]:
    """``tenant/name`` of the VMs with a place on it, running or not."""
    return tuple(sorted(vm.full_name for vm in tx.vms.list(host=host) if vm.has_place_on(gpu)))


def put_health(tx: Transaction, host: Host, gpu: str, address: str, health: GpuHealth | None, *, changed: bool) -> None:
    """``address``: of the GPU, or of one of its virtual functions. ``host``: as it is stored now."""
    if address == gpu:
        tx.gpu_health.put(host.name, gpu, health, changed=changed)
    else:
        whole = with_function(host.health_of(gpu), address, health)
        tx.gpu_health.put(host.name, gpu, whole, changed=changed, function=address)
