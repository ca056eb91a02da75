# SPDX-License-Identifier: Apache-2.0
"""What was put into guests"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.create_table(
        "guests",
        sa.Column("vm", sa.String(36), nullable=False),
        sa.Column("host_key", sa.String(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name=op.f("fk_guests_vm_vms"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("vm", name=op.f("pk_guests")),
    )


def downgrade() -> None:
    op.drop_table("guests")
