# SPDX-License-Identifier: Apache-2.0
"""Controllers know where the others are reached, and invite new ones"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.create_table(
        "controller_doors",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("address", sa.String(length=280), nullable=False),
        sa.Column("certificate", sa.String(length=64), nullable=False),
        sa.Column("credential", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_controller_doors")),
    )
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=12), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
    )


def downgrade() -> None:
    op.drop_table("invitations")
    op.drop_table("controller_doors")
