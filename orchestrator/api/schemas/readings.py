# SPDX-License-Identifier: Apache-2.0
"""What is read on hosts, in base units; docs/reference/metrics.md says what each quantity means."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.readings.quantities import SubjectKind
from orchestrator.core.readings.received import History, ReceivedFrame
from orchestrator.core.readings.tunnels import Tunnel
from orchestrator.services.readings.believed import BelievedReading
from orchestrator.services.readings.readings import HostReadings, VmReadings


class ReadingValue(AnswerBody):
    """One number."""

    quantity: str
    """What is read, with its unit."""
    label: str
    """Which of several: a sensor, a link, a disk; empty: there is one."""
    number: float
    """In the unit that the quantity's name has; ratios go from 0 to 1."""


class ReadingSeries(AnswerBody):
    """A quantity over the last minutes."""

    quantity: str
    """What is read, with its unit."""
    label: str
    """Which of several; empty: there is one."""
    numbers: tuple[float | None, ...]
    """As many as ages_s; of what only grows, by how much a second. null: it was not read then."""

    @classmethod
    def all_of(cls, history: History) -> tuple[ReadingSeries, ...]:
        return tuple(
            cls(quantity=series.quantity.name, label=series.label, numbers=series.numbers) for series in history.series
        )


class HistoryAnswer(AnswerBody):
    """The last five minutes."""

    ages_s: tuple[float, ...]
    """Seconds since each moment, oldest first."""
    series: tuple[ReadingSeries, ...]
    """Quantities that are charted."""

    @classmethod
    def of(cls, history: History | None) -> HistoryAnswer | None:
        if history is None:
            return None
        return cls(ages_s=history.ages_s, series=ReadingSeries.all_of(history))


class ReadingAnswer(CopiedAnswer):
    """A GPU, GPU instance, vGPU or VM as it is now."""

    kind: SubjectKind
    """What it is."""
    id: str
    """GPU: its UUID. GPU instance: that and a number. vGPU: its UUID. VM: its id."""
    gpu: str | None
    """PCI address of the GPU that it is or lies on; null: of a VM."""
    model: str | None
    """Of that GPU."""
    vm: str | None
    """tenant/name of the VM of ours that it is or that has it."""
    values: tuple[ReadingValue, ...]
    """What was read. What the GPU or its driver cannot tell is not there."""
    facts: dict[str, str]
    """What is no number: versions, the type of a vGPU."""
    silent: str | None
    """Why there are no numbers."""
    history: HistoryAnswer | None
    """null: it was not asked for."""

    @classmethod
    def of_believed(cls, item: BelievedReading, history: History | None) -> ReadingAnswer:
        return cls(
            kind=item.reading.kind,
            id=item.reading.id,
            gpu=None if item.gpu is None else item.gpu.address,
            model=None if item.gpu is None else item.model,
            vm=None if item.vm is None else item.vm.full_name,
            values=_values(item),
            facts=dict(item.reading.facts),
            silent=item.reading.silent or None,
            history=HistoryAnswer.of(history),
        )


class TunnelAnswer(CopiedAnswer, copies=Tunnel):
    """How packets fare between a host and another one, by a few pings."""


class HostReadingsAnswer(AnswerBody):
    """What was read on a host."""

    host: str
    """Name of the host."""
    age_s: float | None
    """Seconds since it was received; null: nothing was received within 30 s."""
    clock_ahead_s: float | None
    """How far the host's clock is before the server's; negative: behind."""
    problems: tuple[str, ...]
    """What could not be read on the host as a whole, for people."""
    readings: tuple[ReadingAnswer, ...]
    """GPUs, GPU instances, vGPUs and VMs."""
    tunnels: tuple[TunnelAnswer, ...]
    """To a few other hosts of OVN, as they were measured within the last minutes."""

    @classmethod
    def of(cls, host: HostReadings, *, history: bool) -> HostReadingsAnswer:
        received, history_of = host.received, _histories(host.received, history=history)
        return cls(
            host=host.known.host.name,
            age_s=None if received is None else received.age_s,
            clock_ahead_s=None if received is None else received.clock_ahead_s,
            problems=() if received is None else received.frame.problems,
            readings=tuple(ReadingAnswer.of_believed(item, history_of(item)) for item in host.readings),
            tunnels=() if received is None else tuple(map(TunnelAnswer.of, received.frame.tunnels)),
        )


class VmReadingAnswer(AnswerBody):
    """A VM, its vGPU or GPU instance as it is now."""

    kind: SubjectKind
    """What it is."""
    number: int
    """Of the VM's things of that kind, from 0."""
    values: tuple[ReadingValue, ...]
    """What was read. What its GPU or guest cannot tell is not there."""
    facts: dict[str, str]
    """What is no number: versions, the type of a vGPU."""
    history: HistoryAnswer | None
    """null: it was not asked for."""


class VmReadingsAnswer(AnswerBody):
    """What was read of a VM. It names no host and no GPU."""

    vm: str
    """Its id."""
    name: str
    """tenant/name."""
    age_s: float | None
    """Seconds since it was received; null: nothing was received within 30 s."""
    readings: tuple[VmReadingAnswer, ...]
    """The VM itself, its vGPUs and GPU instances."""

    @classmethod
    def of(cls, vm: VmReadings, *, history: bool) -> VmReadingsAnswer:
        ordered = sorted(vm.readings, key=lambda item: (item.reading.kind, item.reading.id))
        before = [item.reading.kind for item in ordered]
        history_of = _histories(vm.received, history=history)
        return cls(
            vm=vm.vm.id,
            name=vm.vm.full_name,
            age_s=None if vm.received is None else vm.received.age_s,
            readings=tuple(
                VmReadingAnswer(
                    kind=item.reading.kind,
                    number=before[:at].count(item.reading.kind),
                    values=_values(item),
                    facts={name: fact for name, fact in item.reading.facts.items() if name in _FACTS_OF_TENANTS},
                    history=HistoryAnswer.of(history_of(item)),
                )
                for at, item in enumerate(ordered)
            ),
        )


class ScrapeTargets(AnswerBody):
    """Pages to scrape, as Prometheus's http_sd_configs wants them."""

    targets: tuple[str, ...]
    """Host and port of the server."""
    labels: dict[str, str]
    """Where the page is, and what it is of."""


_FACTS_OF_TENANTS = frozenset({"vgpu_type", "guest_driver_version"})


def _histories(received: ReceivedFrame | None, *, history: bool) -> Callable[[BelievedReading], History | None]:
    """What each reading was in the last minutes; None: it is not asked for."""
    if received is None or not history:
        return lambda _: None
    of = received.histories()
    return lambda item: of(item.reading.kind, item.reading.id)


def _values(item: BelievedReading) -> tuple[ReadingValue, ...]:
    return tuple(
        ReadingValue(quantity=quantity.name, label=label, number=number)
        for quantity, label, number in item.reading.values()
    )
