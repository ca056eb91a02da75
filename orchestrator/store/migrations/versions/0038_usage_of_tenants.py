# SPDX-License-Identifier: Apache-2.0
"""What every tenant holds, counted

What is counted is written here as it was when this schema came (core/tenancy/quota.py), so that it stays the same step.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"

_MIB: Final = 2**20
_TYPE: Final = re.compile(r"(?:GRID|NVIDIA) (?P<board>.+?)(?:-(?P<slices>[1-7]))?-(?P<gb>[0-9]+)[ABCQ](?:ME|4)?")
_vms = sa.table(
    "vms", sa.column("tenant"), sa.column("spec", sa.JSON), sa.column("devices", sa.JSON), sa.column("freed")
)
_volumes = sa.table("volumes", sa.column("tenant"), sa.column("size_bytes"), sa.column("state"))
_usage = sa.table("tenant_usage", sa.column("tenant"), sa.column("resource"), sa.column("used"))


def upgrade() -> None:
    op.create_table(
        "tenant_usage",
        sa.Column("tenant", sa.String(63), nullable=False),
        sa.Column("resource", sa.String(100), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "resource", name=op.f("pk_tenant_usage")),
    )
    op.create_index(op.f("ix_tenant_usage_resource"), "tenant_usage", ["resource"])
    connection, used = op.get_bind(), Counter[tuple[str, str]]()
    for vm in connection.execute(sa.select(_vms)):
        for resource, amount in _amounts(vm.spec, vm.devices, vm.freed).items():
            used[vm.tenant, resource] += amount
    for volume in connection.execute(sa.select(_volumes).where(_volumes.c.state != "lost")):
        used[volume.tenant, "disk"] += -(-volume.size_bytes // _MIB)
    rows = [{"tenant": tenant, "resource": resource, "used": amount} for (tenant, resource), amount in used.items()]
    if rows:
        connection.execute(sa.insert(_usage), rows)


def downgrade() -> None:
    op.drop_table("tenant_usage")


def _amounts(spec: dict[str, Any], devices: list[dict[str, Any]], freed: str | None) -> Counter[str]:
    held = Counter({"vms": 1, "disk": -(-spec["disk_bytes"] // _MIB)})
    if freed is not None:
        return held
    held.update({"vcpus": spec["vcpus"], "memory": spec["memory_mib"]})
    for device in devices:
        name = device["type_name"]
        vgpu = None if device["kind"] == "passthrough" else _TYPE.fullmatch(name)
        if vgpu is None:
            held.update({"gpus": 1, f"gpus:{name.partition(' ')[2]}": 1})
            continue
        held.update({"gpus": 1, f"gpus:{vgpu['board']}": 1, "vgpus": 1})
        held.update({f"vgpus:{one}" for one in (name, spec["profile"])})
        held["framebuffer"] += int(vgpu["gb"]) * 1024 or 512
        held["mig-slices"] += int(vgpu["slices"] or 0)
    return held
