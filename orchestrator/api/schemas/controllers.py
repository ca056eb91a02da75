# SPDX-License-Identifier: Apache-2.0
"""Bodies that controllers send each other."""

from __future__ import annotations

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.catalogue.described import StrictForm


class JoinBody(StrictForm):
    """From the token."""

    id: str = Field(max_length=12)
    secret: str = Field(max_length=100)


class JoinAnswer(AnswerBody):
    """What the new controller needs."""

    site: str
    key: str
