# SPDX-License-Identifier: Apache-2.0
"""What an operation is about by name, kept when that is gone; names and last use of tokens"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_NAMES = {
    "postgresql": "UPDATE operations SET subject_name = coalesce(tenant || '/' || (inputs ->> 'vm'), subject)",
    "sqlite": "UPDATE operations SET subject_name = coalesce(tenant || '/' || json_extract(inputs, '$.vm'), subject)",
}


def upgrade() -> None:
    op.add_column("operations", sa.Column("subject_name", sa.String(length=127), nullable=False, server_default=""))
    op.create_index(op.f("ix_operations_subject_name"), "operations", ["subject_name"])
    op.execute(_NAMES[op.get_bind().dialect.name])
    op.add_column("tokens", sa.Column("name", sa.String(length=63), nullable=True))
    op.add_column("tokens", sa.Column("last_used_at", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("tokens", "last_used_at")
    op.drop_column("tokens", "name")
    op.drop_index(op.f("ix_operations_subject_name"), table_name="operations")
    op.drop_column("operations", "subject_name")
