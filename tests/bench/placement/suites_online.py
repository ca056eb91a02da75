# SPDX-License-Identifier: Apache-2.0
"""S1 MIG churn, S3 whole GPUs on NVSwitch hosts, S4 time-sliced, S5 all of them on the same hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.placement.views import HostView
from tests.bench.placement.churn import ALL, LP_BOUND, run
from tests.bench.placement.fleets import eight_gpu_hosts, geometry, single_gpu_hosts
from tests.bench.placement.rows import Row, rows_of
from tests.bench.placement.workloads import MIG_MIXES, Arrival, Kind, arrivals, mig_kinds

SEEDS = (7, 1009, 90001)
H100 = "H100 SXM5 80GB"
WHOLE_MIXES = {"standard": (0.4, 0.2, 0.2, 0.2), "big": (0.1, 0.2, 0.3, 0.4)}
L4_MIXES = {"small": (0.3, 0.2, 0.2, 0.2, 0.1), "middle": (0.2, 0.2, 0.3, 0.2, 0.1)}
L4_SIZES = (4, 6, 8, 12, 24)
EQUAL_SIZES = (4, 8, 12, 16, 24, 48)
SOME = ("vgpuctl", "best_fit", "first_fit", "ceiling", LP_BOUND)
ALL_MIG = (*ALL, LP_BOUND)
"""The bound is of the 7-slice family: no other suite has it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run, small enough to be handed to another process."""

    suite: str
    case: str
    policy: str
    seed: int
    load: float
    size: int
    mix: str
    count: int
    heavy: bool = False


def jobs(scale: float) -> Iterator[Job]:
    yield from _mig_jobs(scale)
    for load in (0.85, 0.95):
        for policy in ALL:
            for seed in SEEDS:
                for mix in WHOLE_MIXES:
                    case = f"load={load} hosts=100 mix={mix}"
                    yield Job("S3", case, policy, seed, load, 100, mix, int(10_000 * scale))
                for mix in L4_MIXES:
                    case = f"load={load} gpus=100 mix={mix} sizes=mixed"
                    yield Job("S4", case, policy, seed, load, 100, mix, int(12_000 * scale))
                case = f"load={load} gpus=100 mix=uniform sizes=equal"
                yield Job("S4", case, policy, seed, load, 100, "equal", int(12_000 * scale))
    for policy in ALL:
        for seed in SEEDS[:2]:
            yield Job("S5", "load=0.9 hosts=50 mix=all", policy, seed, 0.9, 50, "all", int(10_000 * scale))


def _mig_jobs(scale: float) -> Iterator[Job]:
    for mix in MIG_MIXES:
        for load in (0.85, 0.95, 1.05, 1.3):
            seeds = SEEDS if load == 0.95 else SEEDS[:1]
            for policy in ALL_MIG:
                for seed in seeds:
                    case = f"load={load} gpus=100 mix={mix}"
                    yield Job("S1", case, policy, seed, load, 100, mix, int(12_000 * scale))
            for policy in ALL_MIG if load == 0.95 else SOME:
                case = f"load={load} gpus=1000 mix={mix}"
                yield Job("S1", case, policy, SEEDS[0], load, 1000, mix, int(25_000 * scale))
        for policy in ALL_MIG:
            case = f"load=0.95 gpus=100 mix={mix} lifetime=lognormal"
            yield Job("S1", case, policy, SEEDS[0], 0.95, 100, mix, int(12_000 * scale), heavy=True)


def perform(job: Job) -> list[Row]:
    hosts, stream = _setting(job)
    values = run(job.policy, hosts, stream, lambda arrival: arrival.kind.profile == "gpu:8")
    special = values.pop("special_acceptance", None)  # a bound has none
    if job.suite != "S5":
        values.pop("empty_hosts", None)
    if job.suite == "S3":
        values["acceptance_of_8_gpus"] = special
        values.pop("active_over_min", None)
    return rows_of(job.suite, job.case, job.policy, values)


def _setting(job: Job) -> tuple[list[HostView], list[Arrival]]:
    if job.suite == "S1":
        kinds = mig_kinds(job.mix)
        hosts = list(single_gpu_hosts(job.size, geometry(H100, "mig")))
        slots = 8.0 * job.size
    elif job.suite == "S3":
        shares = zip((1, 2, 4, 8), WHOLE_MIXES[job.mix], strict=True)
        kinds = tuple(Kind(f"gpu:{n}", n, share) for n, share in shares)
        hosts = list(eight_gpu_hosts(job.size, geometry(H100)))
        slots = 8.0 * job.size
    elif job.mix == "equal":
        kinds = tuple(Kind(f"NVIDIA L40S-{gb}Q", gb, 1 / 6) for gb in EQUAL_SIZES)
        hosts = list(single_gpu_hosts(job.size, geometry("L40S", "time_sliced")))
        slots = 48.0 * job.size
    elif job.suite == "S4":
        shares_l4 = zip(L4_SIZES, L4_MIXES[job.mix], strict=True)
        kinds = tuple(Kind(f"NVIDIA L4-{gb}Q", gb, share) for gb, share in shares_l4)
        hosts = list(single_gpu_hosts(job.size, geometry("L4", "mixed")))
        slots = 24.0 * job.size
    else:
        kinds = _all_kinds()
        hosts = list(eight_gpu_hosts(job.size, geometry(H100, "mig", "time_sliced")))
        slots = 64.0 * job.size
    stream = arrivals(kinds, slots=slots, load=job.load, count=job.count, seed=job.seed, heavy=job.heavy)
    return hosts, list(stream)


def _all_kinds() -> tuple[Kind, ...]:
    mig = tuple(Kind(kind.profile, kind.slots, kind.share * 0.5) for kind in mig_kinds("uniform"))
    sliced = tuple(Kind(f"NVIDIA H100XM-{gb}C", gb / 10, 0.1) for gb in (10, 20, 40))
    whole = tuple(Kind(f"gpu:{n}", 8.0 * n, 0.2 * share) for n, share in ((1, 0.6), (2, 0.2), (4, 0.1), (8, 0.1)))
    return mig + sliced + whole
