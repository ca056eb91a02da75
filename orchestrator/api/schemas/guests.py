# SPDX-License-Identifier: Apache-2.0
"""Bodies about what is put into guests."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Moment
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.gpu.licence import GuestLicence
from orchestrator.core.guest.guest import GuestRecord, RoleResult
from orchestrator.core.guest.settings import MAX_SECRET_BYTES, MAX_SETTINGS
from orchestrator.core.vms.console_session import ConsoleKind

Roles = Annotated[
    tuple[Annotated[str, Field(max_length=63)], ...],
    Field(max_length=32, strict=False, description="Roles by name; they are run in the order that they need"),
]

Settings = Annotated[
    dict[str, int | Annotated[str, Field(max_length=63)]],
    Field(max_length=MAX_SETTINGS, description="What is said to the roles, by name, each of which knows its type"),
]
Secrets = Annotated[
    dict[str, Annotated[str, Field(max_length=MAX_SECRET_BYTES)]],
    Field(max_length=8, description="Files that roles need, by name, like licence_token; forgotten after the run"),
]


class ProvisionVmBody(StrictForm, example={"roles": ["guest_check"]}):
    """Roles that are to be run in the guest of a VM."""

    roles: Roles
    settings: Settings = Field(default={})
    secrets: Secrets = Field(default={}, repr=False)
    new_host_key: bool = False
    """The SSH host key that the guest shows next counts from now on."""


class RoleResultAnswer(CopiedAnswer, copies=RoleResult):
    """A role as it was run last in a guest."""

    at: Moment


class GuestFactsAnswer(CopiedAnswer, copies=GuestFacts):
    """What the guest said of itself to the role guest_check; it is the guest's word alone."""


class LicenceAnswer(CopiedAnswer, copies=GuestLicence):
    """NVIDIA's licence of a guest, as the driver of its host tells it; the guest is not asked."""

    until: Moment | None


class ProvisioningAnswer(AnswerBody):
    """What was put into the guest of a VM."""

    results: tuple[RoleResultAnswer, ...]
    """One for each role that was ever run."""
    facts: GuestFactsAnswer
    """What it said of itself."""
    licence: LicenceAnswer
    """What its host says of its licence."""

    @classmethod
    def of(cls, record: GuestRecord, licence: GuestLicence) -> ProvisioningAnswer:
        return cls.copied(record, licence=licence)


class AskForConsoleBody(StrictForm, example={"kind": "serial", "origin": "https://pool.example.org:8443"}):
    """A console that is to be opened by a stream of its own, as pages do it."""

    kind: ConsoleKind
    """Which console."""
    origin: str | None = Field(default=None, max_length=300)
    """Of the page whose stream it is for, as browsers send it; null: of a program."""


class ConsoleTicketAnswer(AnswerBody):
    """The only answer that holds the ticket."""

    ticket: str
    """Good once; the stream names the subprotocols ``binary`` and ``ticket.`` with this."""
    expires_at: Moment
    """Until when it opens one."""
