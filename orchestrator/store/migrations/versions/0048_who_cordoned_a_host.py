# SPDX-License-Identifier: Apache-2.0
"""Who cordoned a host, when and why"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("hosts", sa.Column("cordon", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("hosts", "cordon")
