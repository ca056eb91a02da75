# SPDX-License-Identifier: Apache-2.0
"""Usage and changes of each host, looks apart from snapshots"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "looks",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.Column("storage_free_bytes", sa.BigInteger(), nullable=True),
        sa.Column("disk_bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("fk_looks_host"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_looks")),
    )
    op.execute("INSERT INTO looks (host, taken_at, disk_bytes, digest) SELECT host, taken_at, 0, '' FROM snapshots")
    op.drop_column("snapshots", "taken_at")
    op.create_table(
        "host_usage",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("vcpus", sa.BigInteger(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("disk_bytes", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_host_usage")),
    )
    op.create_index(op.f("ix_host_usage_changed"), "host_usage", ["changed"])
    op.execute(
        "INSERT INTO host_usage (host, vcpus, memory_mib, disk_bytes, changed)"
        " SELECT hosts.name, coalesce(sum(host_claims.vcpus), 0), coalesce(sum(host_claims.memory_mib), 0),"
        " coalesce(sum(host_claims.disk_bytes), 0), 0"
        " FROM hosts LEFT JOIN host_claims ON host_claims.host = hosts.name GROUP BY hosts.name"
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_host_usage_changed"), table_name="host_usage")
    op.drop_table("host_usage")
    op.add_column("snapshots", sa.Column("taken_at", sa.Float(), nullable=False, server_default="0"))
    op.execute("UPDATE snapshots SET taken_at = (SELECT taken_at FROM looks WHERE looks.host = snapshots.host)")
    op.drop_table("looks")
