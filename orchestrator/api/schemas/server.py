# SPDX-License-Identifier: Apache-2.0
"""Bodies about the server itself."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.catalogue.described import StrictForm


class ServerAnswer(AnswerBody):
    """The process that answers."""

    version: str
    """Its version."""
    pid: int | None
    """Its process on the server's machine; null: only operators are told."""
    started_at: datetime | None
    """When it began; null: only operators are told."""
    running_operations: int
    """Of those that the caller may see."""
    stops_after_idle_seconds: float | None
    """null: it stays, or only operators are told."""
    certificate_ends_at: datetime | None
    """When the certificate that it serves ends; null: it does not listen on the network, or only operators are told."""
    certificate_refused: str | None
    """Why the certificate that is in its file now is not served; null: it is, or only operators are told."""
    warnings: list[str] = Field(default=[])
    """What goes wrong in the server now; operators alone are told."""


class StopBody(StrictForm):
    """How to stop."""

    model_config = ConfigDict(title="StopServer", json_schema_extra={"examples": [{"only_idle": True}]})

    only_idle: bool = False
    """Refuse while operations run."""
