# SPDX-License-Identifier: Apache-2.0
"""The first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("sequence", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit")),
    )
    op.create_table(
        "hosts",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("provisioning_user", sa.String(length=64), nullable=False),
        sa.Column("host_key", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=True),
        sa.Column("cordoned", sa.Boolean(), nullable=False),
        sa.Column("machine_id", sa.String(length=64), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("last_seen_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_hosts")),
        sa.UniqueConstraint("address", "port", name=op.f("uq_hosts_address_port")),
    )
    op.create_table(
        "images",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("format", sa.String(length=8), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("virtual_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_images")),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=40), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "networks",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("subnet", sa.String(length=18), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_networks")),
        sa.UniqueConstraint("subnet", name=op.f("uq_networks_subnet")),
    )
    op.create_table(
        "operations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.String(length=63), nullable=False),
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=True),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("remainder", sa.JSON(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("cancelled", sa.Boolean(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
    )
    with op.batch_alter_table("operations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_operations_state"), ["state"], unique=False)
        batch_op.create_index(batch_op.f("ix_operations_subject"), ["subject"], unique=False)

    op.create_table(
        "secrets",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
    )
    op.create_table(
        "gpus",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("address", sa.String(length=12), nullable=False),
        sa.Column("functions_by_us", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("fk_gpus_host"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("host", "address", name=op.f("pk_gpus")),
    )
    op.create_table(
        "snapshots",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("fk_snapshots_host"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_snapshots")),
    )
    op.create_table(
        "steps",
        sa.Column("operation", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"], name=op.f("fk_steps_operation"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("operation", "position", name=op.f("pk_steps")),
    )
    op.create_table(
        "vms",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("image", sa.String(length=63), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("device", sa.JSON(), nullable=False),
        sa.Column("addresses", sa.JSON(), nullable=False),
        sa.Column("operation", sa.String(length=36), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("fk_vms_host")),
        sa.ForeignKeyConstraint(["image"], ["images.name"], name=op.f("fk_vms_image")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vms")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_vms_tenant_name")),
    )
    op.create_table(
        "function_claims",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("function", sa.String(length=12), nullable=False),
        sa.Column("vm", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name=op.f("fk_function_claims_vm")),
        sa.PrimaryKeyConstraint("host", "function", name=op.f("pk_function_claims")),
        sa.UniqueConstraint("vm", name=op.f("uq_function_claims_vm")),
    )
    op.create_table(
        "gpu_cuts",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("gpu", sa.String(length=12), nullable=False),
        sa.Column("cut", sa.String(length=80), nullable=False),
        sa.ForeignKeyConstraint(["host", "gpu"], ["gpus.host", "gpus.address"], name=op.f("fk_gpu_cuts_host_gpu")),
        sa.PrimaryKeyConstraint("host", "gpu", name=op.f("pk_gpu_cuts")),
        sa.UniqueConstraint("host", "gpu", "cut", name=op.f("uq_gpu_cuts_host_gpu_cut")),
    )
    op.create_table(
        "host_claims",
        sa.Column("vm", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("disk_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["host"], ["hosts.name"], name=op.f("fk_host_claims_host")),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name=op.f("fk_host_claims_vm")),
        sa.PrimaryKeyConstraint("vm", name=op.f("pk_host_claims")),
    )
    with op.batch_alter_table("host_claims", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_host_claims_host"), ["host"], unique=False)

    op.create_table(
        "slot_claims",
        sa.Column("host", sa.String(length=63), nullable=False),
        sa.Column("gpu", sa.String(length=12), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("cut", sa.String(length=80), nullable=False),
        sa.Column("vm", sa.String(length=36), nullable=False),
        sa.CheckConstraint("slot >= 0", name=op.f("ck_slot_claims_slot")),
        sa.ForeignKeyConstraint(
            ["host", "gpu", "cut"],
            ["gpu_cuts.host", "gpu_cuts.gpu", "gpu_cuts.cut"],
            name=op.f("fk_slot_claims_host_gpu_cut"),
        ),
        sa.ForeignKeyConstraint(["vm"], ["vms.id"], name=op.f("fk_slot_claims_vm")),
        sa.PrimaryKeyConstraint("host", "gpu", "slot", name=op.f("pk_slot_claims")),
    )
    with op.batch_alter_table("slot_claims", schema=None) as batch_op:
        batch_op.create_index("ix_slot_claims_vm", ["vm"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("slot_claims", schema=None) as batch_op:
        batch_op.drop_index("ix_slot_claims_vm")

    op.drop_table("slot_claims")
    with op.batch_alter_table("host_claims", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_host_claims_host"))

    op.drop_table("host_claims")
    op.drop_table("gpu_cuts")
    op.drop_table("function_claims")
    op.drop_table("vms")
    op.drop_table("steps")
    op.drop_table("snapshots")
    op.drop_table("gpus")
    op.drop_table("secrets")
    with op.batch_alter_table("operations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_operations_subject"))
        batch_op.drop_index(batch_op.f("ix_operations_state"))

    op.drop_table("operations")
    op.drop_table("networks")
    op.drop_table("meta")
    op.drop_table("images")
    op.drop_table("hosts")
    op.drop_table("audit")
