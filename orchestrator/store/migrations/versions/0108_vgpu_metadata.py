# SPDX-License-Identifier: Apache-2.0
"""What a driver says of a VM's vGPUs is kept with the VM."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0108"
down_revision = "0107"


def upgrade() -> None:
    op.create_table(
        "vgpu_metadata",
        sa.Column("vm", sa.String(36), nullable=False),
        sa.Column("by_gpu", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("vm", name="pk_vgpu_metadata"),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name="fk_vgpu_metadata_vm_vms", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("vgpu_metadata")
