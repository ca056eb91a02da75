# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl version``"""

from __future__ import annotations

import typer

from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.session import session_of
from orchestrator.client.autostart import connect_running, server_info
from orchestrator.client.version import VERSION


def version(ctx: typer.Context) -> None:
    """Print which build this is, and which the server is that runs; starts none."""
    session = session_of(ctx)
    remote = session.context is not None and session.context.url is not None
    connection = session.client.connection if remote else connect_running(session.state)
    server = None if connection is None else server_info(connection)["version"]
    show(
        {"client": VERSION, "server": server},
        session.format,
        lambda: render_details([("client", VERSION), ("server", "none runs" if server is None else shown(server))]),
    )
