# SPDX-License-Identifier: Apache-2.0
"""Findings hold what hosts say, however long it is"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    with op.batch_alter_table("findings") as table:
        table.alter_column("subject", existing_type=sa.String(length=160), type_=sa.Text(), existing_nullable=False)
        table.alter_column("vm", existing_type=sa.String(length=36), type_=sa.Text(), existing_nullable=True)


def downgrade() -> None:
    with op.batch_alter_table("findings") as table:
        table.alter_column("vm", existing_type=sa.Text(), type_=sa.String(length=36), existing_nullable=True)
        table.alter_column("subject", existing_type=sa.Text(), type_=sa.String(length=160), existing_nullable=False)
