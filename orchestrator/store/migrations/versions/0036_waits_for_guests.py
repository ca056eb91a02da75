# SPDX-License-Identifier: Apache-2.0
"""Operations wait for guests that boot"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.add_column("operations", sa.Column("guest_wait", sa.String(8), nullable=True))
    op.create_index(op.f("ix_operations_guest_wait"), "operations", ["guest_wait"])


def downgrade() -> None:
    op.drop_index(op.f("ix_operations_guest_wait"), "operations")
    op.drop_column("operations", "guest_wait")
