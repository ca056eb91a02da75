# SPDX-License-Identifier: Apache-2.0
"""Snapshots of VMs' disks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0124"
down_revision = "0123"


def upgrade() -> None:
    op.add_column("vms", sa.Column("snapshots", sa.JSON))


def downgrade() -> None:
    op.drop_column("vms", "snapshots")
