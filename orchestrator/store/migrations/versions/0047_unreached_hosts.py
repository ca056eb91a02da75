# SPDX-License-Identifier: Apache-2.0
"""Which controller does not reach which host

A host is unreachable when no controller that lives reaches it; what is to be done there is done by one that does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "unreached_hosts",
        sa.Column("controller", sa.String(80), nullable=False),
        sa.Column("host", sa.String(63), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("fk_unreached_hosts_host"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("controller", "host", name=op.f("pk_unreached_hosts")),
    )


def downgrade() -> None:
    op.drop_table("unreached_hosts")
