# SPDX-License-Identifier: Apache-2.0
"""The Python client: ``vgpuctl.open_client()``, its errors, and ``vgpuctl.models``, the types of what it answers."""

from orchestrator.client.client import Client
from orchestrator.client.generated import models
from orchestrator.client.generated.async_client import AsyncClient
from orchestrator.client.opening import open_async_client, open_client
from orchestrator.core.errors import (
    Bug,
    Conflict,
    Denied,
    Fatal,
    InvalidInput,
    NoCapacity,
    NotFound,
    QuotaExceeded,
    Reason,
    Retryable,
    Stuck,
    Unknown,
    VgpuctlError,
)

__all__ = [
    "AsyncClient",
    "Bug",
    "Client",
    "Conflict",
    "Denied",
    "Fatal",
    "InvalidInput",
    "NoCapacity",
    "NotFound",
    "QuotaExceeded",
    "Reason",
    "Retryable",
    "Stuck",
    "Unknown",
    "VgpuctlError",
    "models",
    "open_async_client",
    "open_client",
]
