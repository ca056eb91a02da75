# SPDX-License-Identifier: Apache-2.0
"""The description of the API says of errors what is true: one body, one media type, everywhere."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from orchestrator.api.errors import MEDIA_TYPE
from orchestrator.api.schemas.problems import ProblemAnswer

PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"model": ProblemAnswer, "description": "Refused or failed; see code and hint"}
}
"""For routers: any status that is not the good one carries a problem."""


class DescribedApi(FastAPI):
    """FastAPI, with problems under their own media type."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            for path in super().openapi()["paths"].values():
                for operation in path.values():
                    content = operation["responses"]["default"]["content"]
                    content[MEDIA_TYPE] = content.pop("application/json")
        return super().openapi()
