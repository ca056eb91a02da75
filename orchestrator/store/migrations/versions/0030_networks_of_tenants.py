# SPDX-License-Identifier: Apache-2.0
"""Networks belong to tenants; those that were there stay the site's, and everybody may use them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

_OF_A_TENANT = sa.text("DELETE FROM networks WHERE name LIKE '%.%'")


def upgrade() -> None:
    with op.batch_alter_table("networks") as table:
        table.alter_column("name", existing_type=sa.String(63), type_=sa.String(127), existing_nullable=False)
        table.add_column(sa.Column("shared", sa.Boolean(), nullable=False, server_default=sa.true()))
    with op.batch_alter_table("networks") as table:
        table.alter_column("shared", existing_type=sa.Boolean(), server_default=None, existing_nullable=False)


def downgrade() -> None:
    op.execute(_OF_A_TENANT)
    with op.batch_alter_table("networks") as table:
        table.drop_column("shared")
        table.alter_column("name", existing_type=sa.String(127), type_=sa.String(63), existing_nullable=False)
