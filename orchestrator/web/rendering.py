# SPDX-License-Identifier: Apache-2.0
"""Templates and what they may call. A fragment is a block of its page's own template, so the two cannot differ."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from orchestrator.client.version import VERSION
from orchestrator.core.geometry.cut import cut_words
from orchestrator.core.readings.frame import PASSED_THROUGH
from orchestrator.core.tenancy.quota import show_amount
from orchestrator.core.vms.lease import show_span
from orchestrator.web.api_calls import Refused
from orchestrator.web.callers import NOBODY, Reader

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).with_name("static")
LIVE: Final = "live"
"""The block of a page that is fetched again when something in it has changed. It hangs on who reads by rights alone."""
READINGS: Final = "readings"
"""The block that is fetched again when hosts have sent something new."""
_WHOLE: Final = "content"
_TYPES: Final = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_GIB_MIB: Final = 1024
_KIB: Final = 1024
_COMMAND: Final = re.compile(r"'vgpuctl ([a-z]+(?:-vms?| [a-z]+)?)\b")
_COMMANDS: Final[dict[str, frozenset[str]]] = {
    "Map": frozenset({"gpu list", "gpu map", "gpu show"}),
    "Hosts": frozenset({"host list", "host show", "host cordon", "host uncordon"}),
    "VMs": frozenset(
        {
            "list-vms",
            "show-vm",
            "create-vm",
            "start-vm",
            "stop-vm",
            "restart-vm",
            "delete-vm",
            "extend-vm",
            "vm snapshot",
            "vm resize-disk",
        }
    ),
    "Operations": frozenset({"operation list", "operation show", "operation retry"}),
    "Findings": frozenset({"doctor"}),
    "Capacity": frozenset({"capacity"}),
    "Profiles": frozenset({"profile list", "profile show"}),
    "Images": frozenset({"image list", "image remove"}),
    "Networks": frozenset({"network list", "network create", "network add", "network remove"}),
    "Volumes": frozenset(
        {"volume list", "volume create", "volume attach", "volume detach", "volume resize", "volume delete"}
    ),
    "Backups": frozenset({"backup list", "backup run", "backup restore", "backup verify", "backup delete"}),
    "Tenants": frozenset({"tenant list", "tenant create", "tenant delete", "quota show", "quota set", "token create"}),
    "Drivers": frozenset({"driver check"}),
    "Bundles": frozenset({"driver bundle"}),
    "Audit": frozenset({"audit", "audit list"}),
}
"""What a page shows or does: commands by the page's name."""


_OF_DICTS: Final = frozenset(dir(dict))


@cache
def assets() -> dict[str, tuple[bytes, str, str]]:
    """By name: content, media type, and the address. It has the content's hash in it; the hash of all where a package
    has a directory of its own, as its files name each other."""
    vendored = STATIC / "vendor"
    groups = [{path.name: path} for path in (*STATIC.glob("*.*"), *vendored.glob("*.*s"))]
    for package in (path for path in vendored.iterdir() if path.is_dir()):
        files = (path for path in sorted(package.rglob("*.*")) if path.suffix in _TYPES)
        groups.append({path.relative_to(vendored).as_posix(): path for path in files})
    served = {}
    for group in groups:
        contents = {name: path.read_bytes() for name, path in group.items()}
        digest = hashlib.sha256(b"".join(contents.values())).hexdigest()[:16]
        for name, content in contents.items():
            served[name] = content, _TYPES[group[name].suffix], f"/web/static/{digest}/{name}"
    return served


def moment(text: str | None) -> str:
    """``2026-12-01T10:00:05.1Z`` as ``2026-12-01 10:00:05 UTC``, which a script shows in the reader's own zone."""
    if text is None:
        return "never"
    at = datetime.fromisoformat(text).astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S UTC"))


def mib(number: int | None) -> str:
    """In GiB from one of them on."""
    if number is None:
        return "unknown"
    return f"{number / _GIB_MIB:.4g} GiB" if number >= _GIB_MIB else f"{number} MiB"


def size(number: float | None) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    if number is None:
        return "unknown"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < _KIB:
            return f"{number:.4g} {unit}"
        number /= _KIB
    return f"{number:.4g} TiB"


def number(value: float | None) -> str:
    """With four digits."""
    return "–" if value is None else f"{value:.4g}"


def amount(number: int | None, resource: str) -> str:
    """Of a quota, as the command line has it."""
    return "none" if number is None else show_amount(resource, number)


def span(seconds: int | None) -> str:
    """A policy's seconds as people type them: ``7d``."""
    return "none" if seconds is None else show_span(seconds)


def counted(number: int, noun: str) -> str:
    """``1 host``, ``2 hosts``."""
    return noun if number == 1 else f"{noun}s"


def words(name: str | None) -> str:
    """``create_vm`` as ``create vm``."""
    return "" if name is None else name.replace("_", " ").replace("-", " ")


def address(*parts: str, **query: object) -> str:
    """``/web/…`` with every part quoted, and what is set of the query."""
    chosen = urlencode({name: value for name, value in query.items() if value not in {None, ""}})
    path = "/".join(quote(part, safe="") for part in parts)
    return f"/web/{path}?{chosen}" if chosen else f"/web/{path}"


def pages_of(text: str, reader: Reader) -> list[tuple[str, str]]:
    """Name and address of the pages on which one finds what the commands do that are named in the text."""
    named = set(_COMMAND.findall(text))
    return [(name, target) for name, target in reader.navigation if named & _COMMANDS.get(name, frozenset())]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Environment(Environment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """As ever, and of what the API has answered without failing at first, which takes a tenth of a page's time."""
        if type(obj) is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def _environment() -> Environment:
    made = _Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (moment, mib, size, words, counted, number, amount, span, pages_of)
    made.filters |= {filter_.__name__: filter_ for filter_ in filters} | {"cut": cut_words, "digest": _digest}
    made.globals |= {"address": address, "asset": lambda name: assets()[name][2], "version": VERSION}
    made.globals["passed_through"] = PASSED_THROUGH
    return made


def part_of(request: Request) -> str | None:
    """The id of the element that htmx fetches again, which its block is named by; None: the page is asked for."""
    if request.headers.get("hx-request") != "true":
        return None
    return request.headers.get("hx-target", "").rpartition("#")[2] or _WHOLE


def render(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """The page; for htmx a block of it, which is the content where the page has no such block."""
    state = request.state
    context = {
        "nonce": state.nonce,
        "request_id": state.request_id,
        "reader": getattr(state, "reader", NOBODY),
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "local": getattr(state, "session_host", None) is not None,
        "request_key": secrets.token_hex(16),
        "stream": None,
        **values,
    }
    if status >= HTTPStatus.BAD_REQUEST:
        context["stream"] = None
    context["parts"] = _environment().get_template("parts.html").make_module(context)
    page = _environment().get_template(template)
    part = part_of(request)
    if part is None:
        return HTMLResponse(page.render(context), status)
    block = page.blocks.get(part) or page.blocks[_WHOLE]
    return HTMLResponse("".join(block(page.new_context(context))), status)


def error_page(request: Request, refused: Refused) -> Response:
    """A problem as a page of its own, with its hint, code and the request's id."""
    title = HTTPStatus(refused.status).phrase
    log.info("request %s of a page is refused: %s", request.state.request_id, refused.problem["code"])
    return render(request, "error.html", {"problem": refused.problem, "title": title}, refused.status)
