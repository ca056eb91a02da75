# SPDX-License-Identifier: Apache-2.0
"""The description of the API: true of errors and headers, and fit for programs that write clients from it.

Ids of operations stay (``vms_create``), schemas are called what they are (``Vm``), everything is described.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from orchestrator.api.errors import MEDIA_TYPE
from orchestrator.api.request_keys import WITHOUT
from orchestrator.api.schemas.base import ProblemAnswer
from orchestrator.api.schemas.events import EventAnswer, GapAnswer
from orchestrator.core.tenancy.request_key import KEY_PATTERN

_MEANINGS: Final = {
    400: "The request itself is wrong",
    401: "Nobody is logged in",
    403: "The caller may not do this, or the quota does not cover it",
    404: "No such object, or none that the caller may know of",
    405: "The API does not have this method here",
    409: "It exists otherwise, or its state forbids this",
    413: "The body is too large",
    500: "A bug in the server, or an operation that is stuck",
    502: "A host, libvirt, the driver or the network failed",
    507: "Nothing free fits",
}

PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": f"{meaning}; see code and hint"} for status, meaning in _MEANINGS.items()
}
"""For routers: every status but the good one carries a problem. It is named as the model where they are described:
named here, each route makes a field of its own for each status, which is more work than all the rest of the API."""

_HEADERS: Final = {
    "If-None-Match": "ETag of the last answer: 304 without a body when nothing has changed",
    "Idempotency-Key": "Sent again under its key, a request is answered as before and not carried out again",
}
DOCUMENT: Final = "/v1/openapi.json"
EXAMPLES_FILE: Final = Path(__file__).with_name("examples.json")
"""An answer for each schema that is one, as a server gave it: tools/api_examples.py writes them."""
_FRAMEWORKS_OWN: Final = "422"
"""FastAPI writes it into the description of every route; we answer 400 instead (api/errors.py)."""


SERVERS: Final = [
    {"url": "/", "description": "Where this document came from"},
    {
        "url": "https://{host}:{port}",
        "description": "A server that listens on the network",
        "variables": {"host": {"default": "localhost"}, "port": {"default": "8443"}},
    },
    {"url": "http://localhost", "description": "Over the unix socket serve.sock of the server's state directory"},
]
_SECURITY: Final = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "From 'vgpuctl token create', or of a login. Without one the unix socket goes by uid",
    }
}
_SCHEMA: Final = "#/components/schemas/{model}"
_REFERENCE: Final = re.compile(r"#/components/schemas/(\w+)")
_PART: Final = re.compile("(Answer|Body)$")


def operation_id(route: APIRoute) -> str:
    """``vms_create``: the file of the route and its function; clients are written from these, so they stay."""
    noun = route.endpoint.__module__.rpartition(".")[2]
    return f"{noun}_{'list' if route.name == 'list_all' else route.name}"


class DescribedApi(FastAPI):
    """FastAPI, with problems under their own media type."""

    def setup(self) -> None:
        """Adds the route of the document, which strangers get too: it is put into text once, not for each of them."""
        kept: list[bytes] = []

        async def described(_: Request) -> Response:
            if not kept:
                kept.append(bytes(JSONResponse(self.openapi()).body))
            return Response(kept[0], media_type="application/json")

        self.add_route(DOCUMENT, described, include_in_schema=False)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            for path, operations in document["paths"].items():
                for verb, operation in operations.items():
                    operation["summary"] = operation["description"].partition(". ")[0].removesuffix(".")
                    _describe_problems(operation["responses"])
                    _describe_headers(verb.upper(), path, operation)
            for model in (ProblemAnswer, EventAnswer, GapAnswer):
                _add_schema(document["components"]["schemas"], model)
            for unused in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(unused, None)
            document |= {"servers": SERVERS, "security": [{"token": []}, {}]}
            document["components"]["securitySchemes"] = _SECURITY
            self.openapi_schema = _with_short_names(document)
            for name, example in json.loads(EXAMPLES_FILE.read_text(encoding="utf-8")).items():
                self.openapi_schema["components"]["schemas"][name].setdefault("examples", [example])
        return super().openapi()


def _add_schema(schemas: dict[str, Any], model: type[BaseModel]) -> None:
    """With those it is made of; by name, as the framework keeps them."""
    schema = model.model_json_schema(mode="serialization", ref_template=_SCHEMA)
    schemas |= {**schema.pop("$defs", {}), model.__name__: schema}
    ordered = dict(sorted(schemas.items()))
    schemas.clear()
    schemas.update(ordered)


def _with_short_names(document: dict[str, Any]) -> dict[str, Any]:
    """Schemas under their titles, of which "Answer" and "Body" say nothing: classes have longer names here than clients
    want."""
    schemas = document["components"]["schemas"]
    names = {key: _PART.sub("", schema.get("title", key)) for key, schema in schemas.items()}
    document["components"]["schemas"] = {names[key]: {**schema, "title": names[key]} for key, schema in schemas.items()}
    text = _REFERENCE.sub(lambda match: f"#/components/schemas/{names[match[1]]}", json.dumps(document))
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _describe_problems(responses: dict[str, Any]) -> None:
    responses.pop(_FRAMEWORKS_OWN, None)
    for status, answer in responses.items():
        if status >= "400":
            answer["content"] = {MEDIA_TYPE: {"schema": {"$ref": _SCHEMA.format(model=ProblemAnswer.__name__)}}}


def _describe_headers(verb: str, path: str, operation: dict[str, Any]) -> None:
    """What api/http_answers.py does for every GET and api/request_keys.py for what makes something."""
    taken = operation.setdefault("parameters", [])
    if verb == "GET" and "application/json" in operation["responses"].get("200", {}).get("content", ()):
        operation["responses"]["304"] = {"description": "As If-None-Match says"}
        taken.append(_header("If-None-Match", {"type": "string"}))
    if verb != "GET" and f"{verb} {path}" not in WITHOUT:
        taken.append(_header("Idempotency-Key", {"type": "string", "pattern": KEY_PATTERN}))


def _header(name: str, schema: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": _HEADERS[name]}
