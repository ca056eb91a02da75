# SPDX-License-Identifier: Apache-2.0
"""What was seen when a copy of a backup was booted, and indexes for pages of backups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0141"
down_revision = "0140"


def upgrade() -> None:
    op.add_column("backups", sa.Column("booted_at", sa.Float))
    op.add_column("backups", sa.Column("boot_outcome", sa.String(10)))
    op.add_column("backups", sa.Column("boot_line", sa.String(160)))
    op.create_index("ix_backups_page", "backups", ["tenant", "created_at", "id"])
    op.create_index("ix_backups_age", "backups", ["created_at", "id"])


def downgrade() -> None:
    op.drop_index("ix_backups_age", "backups")
    op.drop_index("ix_backups_page", "backups")
    for column in ("boot_line", "boot_outcome", "booted_at"):
        op.drop_column("backups", column)
