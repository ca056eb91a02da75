# SPDX-License-Identifier: Apache-2.0
"""Audit records show that a server wrote them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.add_column("audit", sa.Column("proof", sa.String(length=96), nullable=True))


def downgrade() -> None:
    op.drop_column("audit", "proof")
