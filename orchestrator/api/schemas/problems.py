# SPDX-License-Identifier: Apache-2.0
"""The body of every error (RFC 9457), as orchestrator/api/errors.py writes it."""

from __future__ import annotations

from pydantic import ConfigDict

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.core.errors import Reason


class ProblemReason(AnswerBody, copies=Reason):
    """Why something was refused for one group of hosts, GPUs or fields."""


class ProblemAnswer(AnswerBody):
    """What went wrong. ``code`` is stable, ``detail`` is for people."""

    model_config = ConfigDict(title="Problem")

    type: str
    """Kind of it."""
    title: str
    """For people."""
    status: int
    """The HTTP status."""
    detail: str
    """One sentence for people."""
    family: str
    """Kind of the error; fixes status and whether trying again helps."""
    code: str
    """Stable dotted code; docs/reference/errors.md lists them."""
    hint: str | None
    """What to do about it."""
    operator_details: str | None
    """What the host, libvirt or a driver said; only told to operators."""
    reasons: tuple[ProblemReason, ...]
    """Why not, each with the hosts, GPUs or fields it is about."""
