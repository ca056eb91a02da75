# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl policy …``"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from operator import itemgetter
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import tenants
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort, each_once, own_tenant
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.hosts.pool import check_pool_name
from orchestrator.core.maintenance.leaving import parse_leave
from orchestrator.core.names import closest
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.isolation import ISOLATIONS
from orchestrator.core.vms.lease import ENCRYPTIONS, MAX_LEASE_S, PolicyValue, show_span
from orchestrator.core.vms.priority import PRIORITIES

app = new_group("Leases, priorities and maintenance of a tenant's VMs.")

_LEAVE: Final = "maintenance"
_POOL: Final = "pool"
_SPANS: Final = {"lease": "default_lease_s", "max-lease": "max_lease_s", "disk-grace": "disk_grace_s"}
_CHOICES: Final[Mapping[str, tuple[str, Mapping[str, PolicyValue]]]] = {
    "max-priority": ("max_priority", {name: name for name in PRIORITIES}),
    "isolation": ("isolation", {name: name for name in ISOLATIONS}),
    "encryption": ("encryption", {name: name for name in ENCRYPTIONS}),
    "preempt": ("preempt", {"no": False, "yes": True}),
}


Place = Annotated[str, typer.Argument(help="Name of the tenant.", autocompletion=tenants, callback=own_tenant)]


def _span(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda policy: "none" if policy[key] is None else show_span(policy[key])


def _choice(name: str) -> Callable[[Mapping[str, Any]], str]:
    key, values = _CHOICES[name]
    return lambda policy: next((word for word, value in values.items() if value == policy[key]), shown(policy[key]))


def _rank(key: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda policy: inf if policy[key] is None else policy[key]


COLUMNS: Final = (
    field("TENANT", "tenant", Fit.WHOLE),
    *(
        Column(name.replace("-", " ").upper(), _span(key), rank=_rank(key), exact=itemgetter(key))
        for name, key in _SPANS.items()
    ),
    *(Column(name.replace("-", " ").upper(), _choice(name)) for name in _CHOICES),
    field("MAINTENANCE", "maintenance"),
    field("POOL", "pool"),
)


@app.command("list")
def list_policies(ctx: typer.Context, sort: Sort = None) -> None:
    """List the policies of the tenants that you may know of."""
    client = session_of(ctx).client
    policies: list[dict[str, Any]] = []
    for tenant in client.tenants():
        with suppress(NotFound):  # deleted meanwhile
            policies.append({"tenant": tenant["name"], **client.policy(tenant["name"])})
    show_list(policies, COLUMNS, format_of(ctx), "no tenants", sort)


@app.command("show")
def show_policy(ctx: typer.Context, tenant: Place = "default") -> None:
    """Show a tenant's policy."""
    policy = session_of(ctx).client.policy(tenant)
    show(policy, format_of(ctx), lambda: _lines(policy))


@app.command("set")
def set_policy(
    ctx: typer.Context,
    tenant: Place,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="lease=8h, max-lease=30d, disk-grace=7d, none: unlimited; max-priority=high, preempt=yes."
            " isolation=gpu: as tenant set. maintenance=22:00-05:00: when VMs may stop, UTC; or stop, wait."
            " pool=NAME: where disks lie whose request names none."
            " encryption=always: new disks and volumes are encrypted, or refused.",
        ),
    ],
) -> None:
    """Set parts of a tenant's policy; those not named stay.

    The leases of VMs that are there stay as they are. A tenant's own admin sets maintenance, and nothing else.
    """
    wanted = each_once(values, _parsed)
    policy = session_of(ctx).client.change_policy(tenant, wanted)
    show(policy, format_of(ctx), lambda: _lines(policy))


def _parsed(text: str) -> tuple[str, PolicyValue]:
    name, equals, value = text.partition("=")
    name = name.replace("_", "-")
    if equals and name in _SPANS:
        return _SPANS[name], None if value == "none" else parse_duration(value, field=name, at_most_s=MAX_LEASE_S)
    if equals and name == _LEAVE:
        parse_leave(value)
        return "maintenance", value
    if equals and name == _POOL:
        return _POOL, None if value == "none" else check_pool_name(value)
    if not equals or name not in _CHOICES:
        known = [*_SPANS, *_CHOICES, _LEAVE, _POOL]
        meant = next(iter(closest(name, known)), None) if equals and name not in known else None
        hint = f"did you mean {meant}?" if meant else f"one of {', '.join(known)}, like lease=8h"
        raise InvalidInput("policy.invalid", f"{text[:40]!a} sets nothing", hint=hint)
    member, values = _CHOICES[name]
    if value not in values:
        raise InvalidInput("policy.invalid", f"{name} cannot be {value[:40]!a}", hint=f"one of {', '.join(values)}")
    return member, values[value]


def _lines(policy: Json) -> list[str]:
    spans = [(name, _span(key)(policy)) for name, key in _SPANS.items()]
    choices = [(name, _choice(name)(policy)) for name in _CHOICES]
    return render_details(
        [*spans, *choices, (_LEAVE, shown(policy["maintenance"])), (_POOL, shown(policy["pool"] or "none"))]
    )
