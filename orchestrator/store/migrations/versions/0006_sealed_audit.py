# SPDX-License-Identifier: Apache-2.0
"""Audit records are sealed into a chain"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("audit", sa.Column("seal", sa.String(length=64), nullable=True))


def downgrade() -> None:
    op.drop_column("audit", "seal")
