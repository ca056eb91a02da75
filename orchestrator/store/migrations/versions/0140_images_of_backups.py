# SPDX-License-Identifier: Apache-2.0
"""On which image the VM of a backup was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0140"
down_revision = "0139"


def upgrade() -> None:
    op.add_column("backups", sa.Column("image", sa.String(63)))


def downgrade() -> None:
    op.drop_column("backups", "image")
