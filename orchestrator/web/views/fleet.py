# SPDX-License-Identifier: Apache-2.0
"""The map of the fleet, hosts and GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, get_args

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from orchestrator.core.advice.gpu_map import HIDDEN_VM
from orchestrator.core.hosts.host import HostCondition
from orchestrator.web.api_calls import ApiCalls, path_of
from orchestrator.web.live import stream_of
from orchestrator.web.login import Page
from orchestrator.web.rendering import LIVE, READINGS, address, part_of, render
from orchestrator.web.views import readings
from orchestrator.web.views.acts import Form, RefusedAct, carry_out, confirmed, render_acts
from orchestrator.web.views.overview import drawn_racks
from orchestrator.web.views.paging import list_page

GPUS_ON_A_PAGE: Final = 200
HOSTS_ON_A_PAGE: Final = 30
MAP_FILTERS: Final = ("host", "model", "use", "rack")
_KINDS: Final = {None: "free", HIDDEN_VM: "others"}
MAP_NOUNS: Final = ("host", "gpu", "vm", "operation", "finding")


async def fleet_map(request: Request) -> Response:
    """``GET /web/map``: each GPU as it is cut, by rack and host; where that is more than a page and whoever watches the
    pool has not said which, a cell for each host."""
    api: ApiCalls = request.state.api
    status = await api.get("/v1/status")
    narrowed = any(request.query_params.get(name) for name in ("host", "use", "rack", "after"))
    gpus = sum(model["gpus"] for model in status["gpus"])
    if narrowed or not request.state.reader.watches_pool or gpus <= GPUS_ON_A_PAGE:
        return await _gpu_by_gpu(request, status)
    page = await list_page(request, "/v1/gpu-map/racks", MAP_FILTERS, limit=None, member="racks")
    if sum(sum(rack["gpus"]) for rack in page.rows) <= GPUS_ON_A_PAGE:
        return await _gpu_by_gpu(request, status)
    values = {
        "title": "Map",
        "status": status,
        "page": page,
        "overview": drawn_racks(page.rows),
        "stream": stream_of(*MAP_NOUNS),
    }
    return render(request, "map.html", values)


async def gpus(request: Request) -> Response:
    """``GET /web/map/gpus``: as the map, never by hosts."""
    return await _gpu_by_gpu(request, await request.state.api.get("/v1/status"))


async def _gpu_by_gpu(request: Request, status: Mapping[str, Any]) -> Response:
    page = await list_page(request, "/v1/gpu-map", MAP_FILTERS, limit=GPUS_ON_A_PAGE, member="gpus")
    drawn = sorted(_drawn(page.rows), key=lambda gpu: (gpu["rack"] is None, gpu["rack"] or ""))
    values = {
        "title": "Map",
        "status": status,
        "page": page,
        "overview": None,
        "racks": [
            (rack, [(host, list(rows)) for host, rows in groupby(of_rack, key=lambda gpu: gpu["host"])])
            for rack, of_rack in groupby(drawn, key=lambda gpu: gpu["rack"])
        ],
        "stream": stream_of(*MAP_NOUNS, names=filter(None, [page.filters["host"]])),
    }
    return render(request, "map.html", values, page.status)


def _drawn(gpus: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """With a picture, and what a reader is told in words: how much is taken, by whom; of a GPU that is given whole, how
    many its VM has of these."""
    drawn = []
    for gpu in gpus:
        taken = [cell for cell in gpu["cells"] if cell["vm"] not in {None, HIDDEN_VM}]
        used = sum(cell["size"] for cell in taken)
        owners = [f"{cell['tenant']}/{cell['vm']}" if cell["tenant"] else cell["vm"] for cell in taken]
        cells = tuple((cell["start"], cell["size"], _KINDS.get(cell["vm"], "used")) for cell in gpu["cells"])
        picture = _picture(gpu["slots"], gpu["unusable"] is not None, cells)
        drawn.append({**gpu, "used": used, "owners": owners, "picture": picture})
    whole = Counter((gpu["host"], *gpu["owners"]) for gpu in drawn if gpu["cut"] == "whole")
    for gpu in drawn:
        gpu["use_text"] = _use_text(gpu, whole[gpu["host"], *gpu["owners"]] if gpu["cut"] == "whole" else 0)
    return drawn


@lru_cache(maxsize=1024)
def _picture(slots: int, broken: bool, cells: tuple[tuple[int, int, str], ...]) -> Markup:
    """Kept, as many GPUs are cut alike, and few change at an event."""
    drawn = [(start, size, f"{kind} broken" if broken else kind) for start, size, kind in cells]
    if not slots:
        drawn.append((0, 1, "broken" if broken else "whole"))
    rects = "".join(
        f'<rect class="{kind}" x="{start * 10}" y="0" width="{size * 10}" height="10"/>' for start, size, kind in drawn
    )
    head = f'<svg class="slots" viewBox="0 0 {(slots or 1) * 10} 10" preserveAspectRatio="none" aria-hidden="true"'
    return Markup(f'{head} focusable="false">{rects}</svg>')  # noqa: S704 - numbers and words of our own


def _use_text(gpu: Mapping[str, Any], whole_of: int) -> str:
    owners = ", ".join(dict.fromkeys(gpu["owners"]))
    parts = [f"unusable: {gpu['unusable']}"] if gpu["unusable"] else []
    if not gpu["slots"]:
        return parts[0] if parts else "empty, cut in no way yet"
    if whole_of:
        joined = "" if gpu["fabric_partition"] is None else f", fabric partition {gpu['fabric_partition']}"
        parts.append(f"given whole{f', one of {whole_of}' if whole_of > 1 else ''}{joined}: {owners}")
    elif gpu["used"] or not parts:
        parts.append(f"{gpu['used']} of {gpu['slots']} slots taken{f': {owners}' if owners else ''}")
    return "; ".join(parts)


async def hosts(request: Request) -> Response:
    """``GET /web/hosts``"""
    page = await list_page(request, "/v1/hosts", ("state", "selector"), limit=HOSTS_ON_A_PAGE)
    values = {"title": "Hosts", "page": page, "states": get_args(HostCondition), "stream": stream_of("host", "vm")}
    return render(request, "hosts.html", values, page.status)


async def host(request: Request) -> Response:
    """``GET /web/hosts/{name}``"""
    return await _host(request, None)


async def _host(request: Request, refused: RefusedAct | None) -> Response:
    api: ApiCalls = request.state.api
    name = request.path_params["name"]
    values: dict[str, Any] = {
        "title": f"Host {name}",
        "own": address("hosts", name),
        "stream": stream_of("host", "gpu", "vm", "finding", names=[name]),
    }
    if (part := part_of(request)) != READINGS:
        values["host"] = await api.get(path_of("hosts", name))
        values["gpus"] = _drawn((await api.get("/v1/gpu-map", host=name))["gpus"])
        values["power"] = (await api.get("/v1/power", host=name))["gpus"]
        values["vms"] = await api.get("/v1/vms", host=name)
        values["turns"], values["comes"] = await _turns(api, name)
        values["may_drain"] = not any(
            its["act"] != "defragment" and (its["act"] in {"drain", "reboot"} or turn["phase"] != "waiting")
            for its, turn in values["turns"]
        )  # what is refused else
    if part != LIVE:
        values["readings_now"] = await readings.of_host(api, name)
    return render_acts(request, "host.html", values, refused)


async def _turns(api: ApiCalls, host: str) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Maintenances that are not over, each with how far the host is; and moves by which VMs come to it."""
    going_on = [its["id"] for its in await api.get("/v1/maintenances") if its["ended_at"] is None]
    known = [await api.get(path_of("maintenances", number)) for number in going_on]
    turns = [(its, turn) for its in known for turn in its["hosts"] if turn["host"] == host and turn["ended_at"] is None]
    comes = [move for its in known for move in its["moves"] if move["target"] == host]
    return turns, [move for move in comes if move["state"] in {"waiting", "moving"}]


async def cordon(request: Request) -> Response:
    """``POST /web/hosts/{name}/cordon``"""

    async def change(api: ApiCalls, form: Form) -> Any:
        body = {"reason": form["reason"]} if form.get("reason") else None
        return await api.change("POST", path_of("hosts", name, "cordon"), body, key=form.get("key"))

    name = request.path_params["name"]
    return await carry_out(request, "cordon", change, _host, address("hosts", name))


async def uncordon(request: Request) -> Response:
    """``POST /web/hosts/{name}/uncordon``"""

    async def change(api: ApiCalls, form: Form) -> Any:
        return await api.change("POST", path_of("hosts", name, "uncordon"), key=form.get("key"))

    name = request.path_params["name"]
    return await carry_out(request, "uncordon", change, _host, address("hosts", name))


async def drain(request: Request) -> Response:
    """``POST /web/hosts/{name}/drain``: the host's name is typed"""

    async def change(api: ApiCalls, form: Form) -> Any:
        confirmed(form, name)
        body = {member: form[member] for member in ("policy", "reason", "at") if form.get(member)}
        return await api.change("POST", path_of("hosts", name, "drain"), body, key=form.get("key"))

    name = request.path_params["name"]
    return await carry_out(request, "drain", change, _host, address("hosts", name))


async def cancel_maintenance(request: Request) -> Response:
    """``POST /web/hosts/{name}/cancel-maintenance``"""

    async def change(api: ApiCalls, form: Form) -> Any:
        path = path_of("maintenances", form.get("id", ""), "cancel")
        return await api.change("POST", path, key=form.get("key"))

    name = request.path_params["name"]
    return await carry_out(request, "cancel-maintenance", change, _host, address("hosts", name))


async def gpu(request: Request) -> Response:
    """``GET /web/gpus/{host}/{address}``"""
    api: ApiCalls = request.state.api
    name, where = request.path_params["host"], request.path_params["address"]
    values: dict[str, Any] = {
        "title": f"GPU {where} of {name}",
        "own": address("gpus", name, where),
        "stream": stream_of("host", "gpu", "vm", names=[name]),
    }
    if (part := part_of(request)) != READINGS:
        values["gpu"] = await api.get(path_of("gpus", name, where))
        rows = (await api.get("/v1/gpu-map", host=name))["gpus"]
        values["on_map"] = next((row for row in _drawn(rows) if row["gpu"] == where), None)
    if part != LIVE:
        values["readings_now"] = await readings.of_gpu(api, name, where)
    return render(request, "gpu.html", values)


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/map"): fleet_map,
    ("GET", "/web/map/gpus"): gpus,
    ("GET", "/web/hosts"): hosts,
    ("GET", "/web/hosts/{name}"): host,
    ("POST", "/web/hosts/{name}/cordon"): cordon,
    ("POST", "/web/hosts/{name}/uncordon"): uncordon,
    ("POST", "/web/hosts/{name}/drain"): drain,
    ("POST", "/web/hosts/{name}/cancel-maintenance"): cancel_maintenance,
    ("GET", "/web/gpus/{host}/{address}"): gpu,
}
