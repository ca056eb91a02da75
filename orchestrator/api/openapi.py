# SPDX-License-Identifier: Apache-2.0
"""The description of the API says of errors what is true: these statuses, one body, one media type, everywhere."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from orchestrator.api.errors import MEDIA_TYPE
from orchestrator.api.request_keys import WITHOUT
from orchestrator.api.schemas.problems import ProblemAnswer
from orchestrator.core.request_key import KEY_PATTERN

_MEANINGS: Final = {
    400: "The request itself is wrong",
    401: "Nobody is logged in",
    403: "The caller may not do this, or the quota does not cover it",
    404: "No such object, or none that the caller may know of",
    405: "The API does not have this method here",
    409: "It exists otherwise, or its state forbids this",
    412: "It is not as If-Match says",
    413: "The body is too large",
    500: "A bug in the server, or an operation that is stuck",
    502: "A host, libvirt, the driver or the network failed",
    507: "Nothing free fits",
}

PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ProblemAnswer, "description": f"{meaning}; see code and hint"}
    for status, meaning in _MEANINGS.items()
}
"""For routers: every status but the good one carries a problem."""

_FRAMEWORKS_OWN: Final = "422"
"""FastAPI writes it into the description of every route; we answer 400 instead (api/errors.py)."""


class DescribedApi(FastAPI):
    """FastAPI, with problems under their own media type."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            for path, operations in document["paths"].items():
                for verb, operation in operations.items():
                    _describe_problems(operation["responses"])
                    _describe_headers(verb.upper(), path, operation)
            for unused in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(unused, None)
        return super().openapi()


def _describe_problems(responses: dict[str, Any]) -> None:
    responses.pop(_FRAMEWORKS_OWN, None)
    for status in map(str, _MEANINGS):
        content = responses[status]["content"]
        content[MEDIA_TYPE] = content.pop("application/json")


def _describe_headers(verb: str, path: str, operation: dict[str, Any]) -> None:
    """What api/etags.py does for every GET, api/preconditions.py and api/request_keys.py for what changes something."""
    taken = operation.setdefault("parameters", [])
    if verb != "GET":
        taken.append(_header("If-Match", {"type": "string"}))
    elif "application/json" in operation["responses"]["200"]["content"]:
        operation["responses"]["304"] = {"description": "As If-None-Match says"}
        taken.append(_header("If-None-Match", {"type": "string"}))
    if verb == "POST" and f"POST {path}" not in WITHOUT:
        taken.append(_header("Idempotency-Key", {"type": "string", "pattern": KEY_PATTERN}))


def _header(name: str, schema: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema}
