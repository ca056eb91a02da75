# SPDX-License-Identifier: Apache-2.0
"""Bodies about the server itself."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, RequestBody


class ServerAnswer(AnswerBody):
    """The process that answers."""

    version: str
    pid: int | None = Field(description="Its process on the server's machine; null: only operators are told")
    started_at: datetime | None = Field(description="When it began; null: only operators are told")
    running_operations: int = Field(description="Of those that the caller may see")
    stops_after_idle_seconds: float | None = Field(description="null: it stays, or only operators are told")
    certificate_ends_at: datetime | None = Field(
        description="When the certificate that it serves ends; null: it does not listen on the network, or only "
        "operators are told"
    )
    certificate_refused: str | None = Field(
        description="Why the certificate that is in its file now is not served; null: it is, or only operators are told"
    )
    warnings: list[str] = Field(default=[], description="What goes wrong in the server now; operators alone are told")


class StopBody(RequestBody):
    """How to stop."""

    model_config = ConfigDict(title="StopServer", json_schema_extra={"examples": [{"only_idle": True}]})

    only_idle: bool = Field(default=False, description="Refuse while operations run")
