# SPDX-License-Identifier: Apache-2.0
"""Adopted VMs have no base image"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"


def upgrade() -> None:
    _image_may_be_missing(missing=True)


def downgrade() -> None:
    _image_may_be_missing(missing=False)


def _image_may_be_missing(*, missing: bool) -> None:
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column("vms", "image", existing_type=sa.String(length=63), nullable=missing)
        return
    # SQLite changes no column. Alembic's way, a new table renamed, leaves the claims that refer to the old one
    # counted as broken; rows that come back into a table of the same name put that right before the commit.
    made = "SELECT sql FROM sqlite_master WHERE tbl_name = 'vms' AND sql IS NOT NULL ORDER BY type DESC"
    statements = [str(row[0]) for row in op.get_bind().execute(sa.text(made))]
    before, after = "image VARCHAR(63) NOT NULL", "image VARCHAR(63)"
    if not missing:
        before, after = f"{after},", f"{before},"
    op.execute("PRAGMA defer_foreign_keys=ON")
    op.execute("CREATE TEMPORARY TABLE kept_vms AS SELECT * FROM vms")
    op.drop_table("vms")
    for statement in statements:  # the table, then its indexes
        op.execute(sa.text(statement.replace(before, after)))
    op.execute("INSERT INTO vms SELECT * FROM kept_vms")
    op.execute("DROP TABLE kept_vms")
