# SPDX-License-Identifier: Apache-2.0
"""CPUs that VMs have alone"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    op.add_column("hosts", sa.Column("pinnable_cpus", sa.Text(), nullable=True))
    op.add_column("vms", sa.Column("cpus", sa.JSON(), nullable=True))
    op.add_column("host_claims", sa.Column("cpus", sa.Text(), nullable=True))
    op.create_table(
        "cpu_claims",
        sa.Column("host", sa.String(63), nullable=False),
        sa.Column("cpu", sa.Integer(), nullable=False),
        sa.Column("vm", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("host", "cpu", name=op.f("pk_cpu_claims")),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name=op.f("fk_cpu_claims_vm_vms")),
    )
    op.create_index(op.f("ix_cpu_claims_vm"), "cpu_claims", ["vm"])


def downgrade() -> None:
    op.drop_table("cpu_claims")
    op.drop_column("host_claims", "cpus")
    op.drop_column("vms", "cpus")
    op.drop_column("hosts", "pinnable_cpus")
