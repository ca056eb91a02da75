# SPDX-License-Identifier: Apache-2.0
"""Which MIG mode each GPU had when it became ours"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("gpus", sa.Column("mig_found", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("gpus", "mig_found")
