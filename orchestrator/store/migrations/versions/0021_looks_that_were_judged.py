# SPDX-License-Identifier: Apache-2.0
"""Which looks were compared with what is wanted; ends of operations are searched"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("looks", sa.Column("judged", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_operations_finished_at"), "operations", ["finished_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_operations_finished_at"), table_name="operations")
    op.drop_column("looks", "judged")
