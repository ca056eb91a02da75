# SPDX-License-Identifier: Apache-2.0
"""Firmware that VMs boot by"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("vms", sa.Column("firmware", sa.String(10), nullable=True))


def downgrade() -> None:
    op.drop_column("vms", "firmware")
