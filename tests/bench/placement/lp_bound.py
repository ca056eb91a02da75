# SPDX-License-Identifier: Apache-2.0
"""What nobody can beat on a stream of MIG requests: all of it known beforehand, VMs rearranged for free at any moment.

A linear program: which share of each request to take. The rules of the 7-slice family (``fits_seven_slice``) are
linear once the share of 3g in lower halves and of double-memory 1g in weak pairs are columns of their own, so every
choice of whole requests that fits is a solution, and the optimum is an upper bound of all choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import highspy

from tests.bench.placement.highs import model_of
from tests.bench.placement.whole_program import WholeProgram
from tests.bench.placement.workloads import MIG_PROFILES, Arrival

Terms = list[tuple[int, float]]
_KINDS = range(len(MIG_PROFILES))


def most_weight(stream: Sequence[Arrival], gpus: int, weight: Callable[[Arrival], float], seconds: float) -> float:
    """The most ``weight`` that can be accepted on that many GPUs, at least; ``weight`` 0: may be turned away at will.

    :raises RuntimeError: the program was not solved within ``seconds``
    """
    program = WholeProgram()
    shares = [program.column(1, weight(arrival)) for arrival in stream]
    live = [program.column(0, 0.0) for _ in _KINDS]
    for changes in _until_each_peak(stream):
        live = [_counted(program, live[kind], changes[kind], shares, gpus) for kind in _KINDS]
        _bound_seven_slice(program, live, gpus)
    return _solved(program, seconds)


def _until_each_peak(stream: Sequence[Arrival]) -> Iterator[list[list[tuple[int, int]]]]:
    """By kind, (request, 1 or -1) for who came and went up to each arrival that a departure follows.

    Between those the counts only grow or only fall, so what fits at each of them fits at all times.
    """
    events = sorted(
        [(arrival.depart_s, 0, number) for number, arrival in enumerate(stream)]
        + [(arrival.request.now_s, 1, number) for number, arrival in enumerate(stream)]
    )
    changes: list[list[tuple[int, int]]] = [[] for _ in _KINDS]
    came = False
    for _, coming, number in events:
        if came and not coming:
            yield changes
            changes = [[] for _ in _KINDS]
        came = bool(coming)
        changes[MIG_PROFILES.index(stream[number].request.profile)].append((number, 1 if coming else -1))


def _counted(
    program: WholeProgram, before: int, changes: Sequence[tuple[int, int]], shares: Sequence[int], gpus: int
) -> int:
    """The column of how many are there now."""
    if not changes:
        return before
    now = program.column(8 * gpus, 0.0)
    terms: Terms = [(now, 1.0), (before, -1.0)]
    program.bound(0, [*terms, *((shares[number], -float(sign)) for number, sign in changes)], 0)
    return now


def _bound_seven_slice(program: WholeProgram, live: Sequence[int], gpus: int) -> None:
    """What ``fits_seven_slice`` says of counts, with its two choices left to the program."""
    one, double, two, three, four, seven = live
    below, weak = program.column(gpus, 0.0), program.column(gpus, 0.0)
    least = -float(16 * gpus)
    full = float(gpus)
    lower: Terms = [(seven, 1.0), (four, 1.0), (below, 1.0)]
    upper: Terms = [(seven, 1.0), (three, 1.0), (below, -1.0)]
    pairs = [*_times(2, lower), *upper, (two, 1.0), (double, 1.0), (weak, -1.0)]
    program.bound(least, lower, full)
    program.bound(least, [*upper, (weak, 1.0)], full)
    program.bound(least, [(weak, 1.0), (double, -1.0)], 0)
    program.bound(least, _summed(pairs), 3 * full)
    program.bound(least, _summed([(one, 1.0), *_times(2, pairs), *upper, (weak, 1.0)]), 7 * full)


def _times(factor: int, terms: Terms) -> Terms:
    return [(column, factor * amount) for column, amount in terms]


def _summed(terms: Terms) -> Terms:
    sums: dict[int, float] = {}
    for column, amount in terms:
        sums[column] = sums.get(column, 0.0) + amount
    return list(sums.items())


def _solved(program: WholeProgram, seconds: float) -> float:
    library: Any = highspy  # its annotations are not complete
    solver = library.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("time_limit", seconds)):
        solver.setOptionValue(option, value)
    model = model_of(library, program)
    model.integrality_ = []
    solver.passModel(model)
    solver.run()
    status = solver.modelStatusToString(solver.getModelStatus())
    if status != "Optimal":
        raise RuntimeError(f"the bound was not found in {seconds:g} s: {status}")
    return float(solver.getInfo().objective_function_value)
