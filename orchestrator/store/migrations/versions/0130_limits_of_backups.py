# SPDX-License-Identifier: Apache-2.0
"""How much backups write to a target in a second."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0130"
down_revision = "0129"


def upgrade() -> None:
    limit = sa.Column("max_bytes_per_s", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("backup_targets", limit)


def downgrade() -> None:
    op.drop_column("backup_targets", "max_bytes_per_s")
