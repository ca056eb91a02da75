# SPDX-License-Identifier: Apache-2.0
"""What differs from what is wanted, and its repair."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.web.api_calls import ApiCalls
from orchestrator.web.live import stream_of
from orchestrator.web.login import Page
from orchestrator.web.rendering import address
from orchestrator.web.views.acts import Form, RefusedAct, carry_out, render_acts
from orchestrator.web.views.paging import list_page

FINDINGS_ON_A_PAGE: Final = 200


async def findings(request: Request) -> Response:
    """``GET /web/findings``: by host"""
    return await _findings(request, None)


async def _findings(request: Request, refused: RefusedAct | None) -> Response:
    page = await list_page(request, "/v1/findings", ("host", "which"), limit=FINDINGS_ON_A_PAGE)
    by_host = sorted(page.rows, key=lambda finding: finding["host"])
    values = {
        "title": "Findings", "page": page, "stream": stream_of("finding", "operation"),
        "own": address("findings", **page.filters, after=request.query_params.get("after")),
        "hosts": [(host, list(rows)) for host, rows in groupby(by_host, key=lambda finding: finding["host"])],
    }  # fmt: skip
    return render_acts(request, "findings.html", values, refused, page.status)


async def observe(request: Request) -> Response:
    """``POST /web/findings/look``: the hosts are observed now"""

    async def change(api: ApiCalls, form: Form) -> Any:
        return await api.change("POST", "/v1/findings/look", host=form.get("host"))

    return await carry_out(request, "look", change, _findings, address("findings"))


async def repair(request: Request) -> Response:
    """``POST /web/findings/repair``: every repair that the host's standing findings have"""

    async def change(api: ApiCalls, form: Form) -> Any:
        return await api.change("POST", "/v1/findings/repair", key=form.get("key"), host=form.get("host"))

    return await carry_out(request, "repair", change, _findings, address("operations"))


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/findings"): findings,
    ("POST", "/web/findings/look"): observe,
    ("POST", "/web/findings/repair"): repair,
}
