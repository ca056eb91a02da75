# SPDX-License-Identifier: Apache-2.0
"""Policies of backups that are paused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0133"
down_revision = "0132"


def upgrade() -> None:
    op.add_column("backup_policies", sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("backup_policies", "paused")
