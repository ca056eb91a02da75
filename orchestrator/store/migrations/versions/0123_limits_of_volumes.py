# SPDX-License-Identifier: Apache-2.0
"""What a data volume may read and write in a second."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0123"
down_revision = "0118"
COLUMNS = ("max_bytes_per_s", "max_iops")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("volumes", sa.Column(name, sa.BigInteger()))


def downgrade() -> None:
    with op.batch_alter_table("volumes") as volumes:
        for name in COLUMNS:
            volumes.drop_column(name)
