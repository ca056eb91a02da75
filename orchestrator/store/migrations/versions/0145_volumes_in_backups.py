# SPDX-License-Identifier: Apache-2.0
"""Which data volumes a backup holds, or left out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0145"
down_revision = "0142"


def upgrade() -> None:
    op.add_column("backups", sa.Column("volumes", sa.JSON, nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("backups", "volumes")
