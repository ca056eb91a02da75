# SPDX-License-Identifier: Apache-2.0
"""What becomes of VMs or hosts that a command changes: one or several, waited for or not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.cli.commands.vm_views import details, state_of
from orchestrator.cli.output import csv_of, show, shown
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, Format
from orchestrator.client.connection import Json
from orchestrator.core.errors import Reason, VgpuctlError

Outcome = tuple[object, list[str]]
"""What ``-o json`` prints, and the lines for people."""


def finish(session: CliSession, started: Json, tenant: str, *, wait: bool) -> None:
    """Wait for what was started on one VM, and show the VM."""
    data, lines = outcome_of(session, started, tenant, wait=wait)
    show(data, session.format, lambda: lines)


def outcome_of(session: CliSession, started: Json, tenant: str, *, wait: bool) -> Outcome:
    """As the VM is once that has ended."""
    for preempted in started["preempted"]:
        print(f"stopped for it: {shown(preempted)}", file=sys.stderr)
    for moved in started.get("moved", ()):
        print(f"moves for it: {shown(moved)}", file=sys.stderr)
    if started["operation"] is not None:
        if not wait:
            return started, started_lines(started)
        follow(session, started["operation"], joined=started["existing"])
    if started.get("provisioning") is not None:
        follow(session, started["provisioning"])
    vm = session.client.vm(started["name"], tenant)
    so_already = started["existing"] and started["operation"] is None
    return vm, [_as_it_is(vm)] if so_already else details(vm)


def _as_it_is(vm: Mapping[str, Any]) -> str:
    if vm["state"] == "stopped" and vm["maintenance"] is not None:
        return f"{shown(vm['name'])} is stopped for maintenance of its host, and starts again when that is over"
    return f"{shown(vm['name'])} is {state_of(vm)} already"


def started_lines(started: Mapping[str, Any]) -> list[str]:
    """Of one that is not waited for."""
    number = started["operation"]
    if number is None:
        return [f"{shown(started['name'])}: nothing has to be done"]
    then = started.get("provisioning")
    follows = [] if then is None else [f"then roles are run in its guest: vgpuctl operation wait {then}"]
    return [
        f"{shown(started['name'])}: operation {number} started",
        f"follow it: vgpuctl operation wait {number}",
        *follows,
    ]


def each(
    session: CliSession,
    names: Sequence[str],
    begin: Callable[[str], Json],
    end: Callable[[str, Json], Outcome],
    *,
    wait: bool,
    of: str = "VMs",
) -> None:
    """All are begun, then waited for one after the other; one that fails keeps none of the others.

    :raises VgpuctlError: of the only one; of several ``vm.partial`` or ``host.partial``, in the family of the first
        that failed
    """
    begun: dict[str, Json] = {}
    failed: dict[str, VgpuctlError] = {}
    for name in dict.fromkeys(names):
        try:
            begun[name] = begin(name)
        except VgpuctlError as error:
            failed[name] = error
    outcomes: dict[str, Outcome] = {}
    for name, started in begun.items():
        if wait and len(set(names)) > 1 and session.format is Format.TABLE:
            print(f"{name}:", file=sys.stderr)  # whose steps follow
        try:
            outcomes[name] = end(name, started)
        except VgpuctlError as error:
            failed[name] = error
    if len(set(names)) == 1:
        if failed:
            raise next(iter(failed.values()))
        ((name, (data, lines)),) = outcomes.items()
        show(data, session.format, lambda: lines, name=name)
        return
    show([data for data, _ in outcomes.values()], session.format, lambda: _several(outcomes, session.format, of))
    if failed:
        raise _partial(failed, len(set(names)), of)


def _several(outcomes: Mapping[str, Outcome], output: Format, of: str) -> Sequence[str]:
    """Of several VMs one line each."""
    if output is Format.NAME:
        return list(outcomes)
    if output is Format.CSV:
        return csv_of([data for data, _ in outcomes.values() if isinstance(data, Mapping)]).split("\n")
    return [line for data, lines in outcomes.values() for line in ([_line(data, lines)] if of == "VMs" else lines)]


def change_each(
    session: CliSession, names: Sequence[str], begin: Callable[[str], Json], tenant: str, *, wait: bool
) -> None:
    """As :func:`each`; of each is shown how the VM is then."""
    each(session, names, begin, lambda _, started: outcome_of(session, started, tenant, wait=wait), wait=wait)


def _line(data: object, lines: Sequence[str]) -> str:
    if isinstance(data, Mapping) and "state" in data and "name" in data:
        return f"{shown(data['name'])} is {shown(data['state'])}"
    return lines[0]


def _partial(failed: Mapping[str, VgpuctlError], count: int, of: str) -> VgpuctlError:
    reasons = tuple(Reason(code=error.code, message=error.message, subjects=(name,)) for name, error in failed.items())
    first = next(iter(failed.values()))
    return type(first)(
        "vm.partial" if of == "VMs" else "host.partial",
        f"{len(failed)} of {count} {of} could not be done",
        hint=first.hint or "the others are done",
        reasons=(*reasons, *first.reasons),
    )
