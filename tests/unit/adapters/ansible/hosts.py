# SPDX-License-Identifier: Apache-2.0
"""Hosts as the database would hold them."""

from __future__ import annotations

from orchestrator.core.hosts.host import Host


def host(*, address: str = "192.0.2.7", port: int = 22, user: str = "root", host_key: str = "ssh-ed25519 QUJD") -> Host:
    return Host(
        name="gpu-1",
        address=address,
        port=port,
        provisioning_user=user,
        host_key=host_key,
        state="enrolling",
        state_reason=None,
        cordoned=False,
        machine_id=None,
        epoch=3,
        managed_gpus=(),
        last_seen_at=None,
    )
