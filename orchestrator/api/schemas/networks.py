# SPDX-License-Identifier: Apache-2.0
"""Bodies about networks."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Name, RequestBody
from orchestrator.core.network import Network


class AddNetworkBody(RequestBody):
    """A NAT network to make on every host that needs it."""

    model_config = ConfigDict(
        title="AddNetwork", json_schema_extra={"examples": [{"name": "blue", "subnet": "10.88.1.0/24"}]}
    )

    name: Name
    subnet: str | None = Field(default=None, max_length=64, description="None: the next free one")


class NetworkAnswer(AnswerBody):
    """A network that VMs can be put on."""

    model_config = ConfigDict(title="Network")

    name: str
    subnet: str
    tenant: str | None = Field(description="Whose it is; null: the site's")
    shared: bool = Field(description="Every tenant may put VMs on it, which do not reach each other there")

    @classmethod
    def of(cls, network: Network) -> NetworkAnswer:
        return cls(name=network.short, subnet=network.subnet, tenant=network.tenant, shared=network.shared)
