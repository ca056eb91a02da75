# SPDX-License-Identifier: Apache-2.0
"""/v1/network-paths"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from orchestrator.api.routes.security_groups import SecurityRuleAnswer
from orchestrator.api.schemas.base import MAX_NAME, AnswerBody
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.core.northbound.trace import Judgement, Probe
from orchestrator.core.security_groups import Direction
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.services.network_paths import NetworkPath


class JudgementAnswer(AnswerBody):
    """What the groups of one of the two cards said."""

    copied_from = (Judgement,)

    direction: Direction
    """out: at the sender; in: at the receiver."""
    group: str
    """Name of the security group."""
    rule: SecurityRuleAnswer | None
    """Which allows or refuses it; null: no rule of any of the card's groups does."""


class NetworkPathAnswer(AnswerBody):
    """What becomes of the first packet of a connection."""

    copied_from = (NetworkPath,)

    network: str
    receiver_network: str
    sender: str
    receiver: str
    receiver_vm: str
    obstacles: tuple[str, ...]
    arrives: bool
    """It reaches the receiver's card."""
    judgements: tuple[JudgementAnswer, ...]

    @classmethod
    def of(cls, path: NetworkPath) -> NetworkPathAnswer:
        return cls.copied(path)


@dataclass(frozen=True)
class _Connection:
    protocol: Annotated[Probe, Query(description="Of the connection")] = "tcp"
    port: Annotated[int | None, Query(description="Of the receiver; none of ICMP")] = None
    ipv6: Annotated[bool, Query(description="By IPv6, where both have IPv4 as well")] = False


router = APIRouter(prefix="/network-paths", tags=["networks"])


@router.get("")
def explain(
    services: ServicesOf,
    sender: Annotated[str, Query(max_length=MAX_NAME, description="Name of the VM that begins")],
    receiver: Annotated[str, Query(max_length=MAX_NAME, description="Name of the other, or a floating address")],
    connection: Annotated[_Connection, Depends()],
    tenant: TenantOf = DEFAULT_TENANT,
) -> NetworkPathAnswer:
    """Explain whether a VM reaches another. By which rule of which security group, as OVN itself says it."""
    return NetworkPathAnswer.of(services.network_paths.explain(tenant, sender, receiver, **asdict(connection)))
