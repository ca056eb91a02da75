# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl whoami``"""

from __future__ import annotations

import typer

from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.session import session_of
from orchestrator.core.tenancy.access import EVERYWHERE


def whoami(ctx: typer.Context) -> None:
    """Who you are to the server, and what you may do where; which tenant commands are about."""
    session = session_of(ctx)
    caller = session.client.whoami()
    roles = [(f"{shown(grant['role'])} in", shown(grant["tenant"])) for grant in caller["grants"]]
    places = [(role, "every tenant" if place == EVERYWHERE else place) for role, place in roles]
    server = str(session.state) if session.context is None else f"{session.context.name}"
    tenant = session.own_tenant
    show(
        {**caller, "tenant": tenant},
        session.format,
        lambda: render_details([("you", shown(caller["actor"])), *places, ("tenant", tenant), ("server", server)]),
    )
