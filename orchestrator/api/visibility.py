# SPDX-License-Identifier: Apache-2.0
"""Where something is and why it failed there is for those who watch the pool.

A tenant gets the same answers without hosts, addresses of GPUs and texts that a host wrote: from those it could learn
where others' VMs are and what is left beside them. Codes of errors stay, they name nobody.
"""

from __future__ import annotations

from typing import Final

from orchestrator.core.advice.outlook import NEVER_FITS, OWN_IN_THE_WAY
from orchestrator.core.errors import (
    Denied,
    InvalidInput,
    NoCapacity,
    NotFound,
    QuotaExceeded,
    Unknown,
    VgpuctlError,
    WorldError,
    error_from_dict,
    error_to_dict,
)
from orchestrator.core.operation import Operation, StepRecord
from orchestrator.core.tenancy.access import Caller

_THEIR_OWN: Final = (InvalidInput, NotFound, Denied, QuotaExceeded)
"""About the request itself or what the tenant holds."""
_ABOUT_THE_SERVER: Final = ("store.", "login.", "server.")
_ABOUT_THE_GUEST: Final = "guest."
"""What is in its own guest is nobody else's."""
_RUNS_ROLES: Final = "provision_guest."
_OPERATORS: Final = "whoever runs the pool is told why"
REMAINS: Final = "something is left on its host; whoever runs the pool sees what"


def watches_pool(caller: Caller | None) -> bool:
    """May it know of hosts, GPUs and what others hold?"""
    return caller is not None and bool(caller.everywhere)


def check_may_name_place(caller: Caller | None, *places: str | None) -> None:
    """Asked place by place, what fits would tell a tenant what others hold on each.

    :raises Denied: ``host.not_yours``: one is named by somebody who does not watch the pool
    """
    if not watches_pool(caller) and any(place is not None for place in places):
        raise Denied(
            "host.not_yours", "hosts and GPUs are chosen by whoever runs the pool", hint="leave the host and GPU out"
        )


def check_may_know_free(caller: Caller | None) -> None:
    """:raises Denied: ``profile.free_not_told``: it would tell what others hold"""
    if not watches_pool(caller):
        raise Denied(
            "profile.free_not_told",
            "what is free is told to whoever runs the pool",
            hint="'vgpuctl capacity' tells what fits",
        )


def refusal_for_tenant(error: VgpuctlError) -> VgpuctlError:
    """A request's refusal. A conflict is with something of the tenant's own, details are an operator's."""
    if error.of_host:
        return _of_its_host(error)
    if isinstance(error, NoCapacity):
        return _no_place(error)
    if error.code == NEVER_FITS:
        return type(error)(error.code, error.message, hint=error.hint)
    if error.code == "pool.unknown":  # its hint names those that are there
        return type(error)(
            error.code, error.message, hint="whoever runs the site tells which pools its tenants may use"
        )
    if isinstance(error, WorldError) and not error.code.startswith(_ABOUT_THE_SERVER):
        return _of_its_host(error)
    return type(error)(error.code, error.message, hint=error.hint, reasons=error.reasons)


def _no_place(error: NoCapacity) -> NoCapacity:
    """Own VMs are named, others' are not."""
    first = error.told
    if first is None:
        message, hint = "there is no place for it now", "others' VMs are in the way; ask later or for less"
    elif first.code == OWN_IN_THE_WAY:
        message = f"there is no place for it now; {first.message}"
        hint = f"'vgpuctl delete-vm {' '.join(first.subjects)}' gives that back; or ask later, or for less"
    else:
        message, hint = first.message, "whoever runs the pool can change that"
    return NoCapacity("gpu.no_capacity", message, hint=hint)


def failure_for_tenant(stored: dict[str, object] | None) -> dict[str, object] | None:
    """Why an operation failed, as it is stored (core/errors.py)."""
    if stored is None:
        return None
    error = error_from_dict(stored)
    if isinstance(error, NoCapacity) or error.code == NEVER_FITS:
        return error_to_dict(refusal_for_tenant(error))
    own = isinstance(error, _THEIR_OWN) or error.code.startswith(_ABOUT_THE_GUEST)
    return error_to_dict(error if own and not error.of_host else _of_its_host(error))


def is_of_guest(operation: Operation, step: StepRecord) -> bool:
    """Whether the step's message speaks of roles in the tenant's own guest. One that failed or waits names its host."""
    return step.name.startswith(_RUNS_ROLES) and step.state in {"running", "done"} and operation.host_wait is None


def _of_its_host(error: VgpuctlError) -> VgpuctlError:
    what = "what its host did is not known yet" if isinstance(error, Unknown) else "its host could not do it"
    return type(error)(error.code, what, hint=_OPERATORS)
