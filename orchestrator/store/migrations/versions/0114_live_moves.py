# SPDX-License-Identifier: Apache-2.0
"""How long VMs that moved while they ran took, beside how long disks did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0114"
down_revision = "0113"

_BYTES = ("sent_bytes", "memory_bytes", "dirty_per_s", "device_bytes")
_SECONDS = ("pause_s", "pause_low_s", "pause_high_s")


def upgrade() -> None:
    for name in _BYTES:
        op.add_column("disk_copies", sa.Column(name, sa.BigInteger))
    for name in _SECONDS:
        op.add_column("disk_copies", sa.Column(name, sa.Float))


def downgrade() -> None:
    for name in (*_BYTES, *_SECONDS):
        op.drop_column("disk_copies", name)
