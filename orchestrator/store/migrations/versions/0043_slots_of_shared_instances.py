# SPDX-License-Identifier: Apache-2.0
"""What is claimed of an RTX PRO 6000 in MIG mode is counted in GiB

Its GPU instances were claimed in the twelve memory slots of the GPU while each had one vGPU. Where several share one, a
place is smaller than a slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

_BOARD = "NVIDIA RTX Pro 6000 Blackwell DC-"
_GIB = 8
"""Of a memory slot."""
_SLOTS = {"1g.24gb+gfx": 3, "2g.48gb+gfx": 6, "4g.96gb+gfx": 12}
"""Memory slots of the profiles that back vGPUs there."""

_vms = sa.table("vms", sa.column("id", sa.Text()), sa.column("devices", sa.JSON()))
_claims = sa.table(
    "slot_claims",
    *(sa.column(name, sa.Text()) for name in ("host", "gpu", "cut", "vm")),
    sa.column("slot", sa.Integer()),
    sa.column("device", sa.Integer()),
)


def upgrade() -> None:
    _count_in(_GIB, 1)


def downgrade() -> None:
    _count_in(1, _GIB)


def _count_in(after: int, before: int) -> None:
    """Of vGPUs that have an instance to themselves; before, nobody could have a part of one."""
    connection = op.get_bind()
    moved: list[dict[str, Any]] = []
    for vm, number, start, size in _alone(connection):
        mine = sa.and_(_claims.c.vm == vm, _claims.c.device == number)
        rows = connection.execute(sa.select(_claims).where(mine)).mappings().all()
        if len(rows) == size * before:
            connection.execute(sa.delete(_claims).where(mine))
            moved += [dict(rows[0]) | {"slot": start * after + slot} for slot in range(size * after)]
    if moved:
        connection.execute(sa.insert(_claims), moved)


def _alone(connection: sa.Connection) -> Iterator[tuple[str, int, int, int]]:
    """VM, which of its devices, and where its GPU instance begins and ends, in memory slots."""
    for vm, devices in connection.execute(sa.select(_vms.c.id, _vms.c.devices)).all():
        for number, device in enumerate(devices):
            size = _SLOTS.get(device.get("gi_profile") or "")
            if size is not None and str(device["type_name"]).startswith(_BOARD) and _is_whole(device, size):
                yield vm, number, device["gi_start"], size


def _is_whole(device: dict[str, Any], size: int) -> bool:
    """``DC-2-48C``: 48 GiB of an instance that has as many."""
    return str(device["type_name"]).rpartition("-")[2][:-1] == str(size * _GIB)
