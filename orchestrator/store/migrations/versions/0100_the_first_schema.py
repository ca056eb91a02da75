# SPDX-License-Identifier: Apache-2.0
"""The first schema that is brought on to later ones. It stays as it is: what changes later is a migration of its own.
Its number is above those of the versions before it, whose databases are refused."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

revision = "0100"
down_revision = None
_first = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
Table("meta", _first, Column("key", String(40), primary_key=True), Column("value", Text, nullable=False))
Table(
    "hosts", _first,
    Column("name", String(63), primary_key=True), Column("address", String(255), nullable=False),
    Column("port", Integer, nullable=False), Column("provisioning_user", String(64), nullable=False),
    Column("host_key", Text, nullable=False), Column("state", String(20), nullable=False),
    Column("state_reason", Text), Column("cordoned", Boolean, nullable=False), Column("cordoned_for", String(80)),
    Column("cordon", JSON), Column("machine_id", String(64)), Column("epoch", Integer, nullable=False),
    Column("last_seen_at", Float), Column("vcpu_overcommit", Float), Column("memory_overcommit", Float),
    Column("allow_unconfined", Boolean, nullable=False), Column("labels", JSON, nullable=False),
    Column("pinnable_cpus", Text), Column("rdma_nics", Text), Column("restored", String(8)),
    UniqueConstraint("address", "port"),
)  # fmt: skip
Table(
    "gpus", _first,
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
    Column("address", String(12), primary_key=True), Column("functions_by_us", Boolean, nullable=False),
    Column("mig_layout", JSON), Column("uuid", Text), Column("serial", Text), Column("mig_found", Boolean),
)  # fmt: skip
Table(
    "snapshots", _first,
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
    Column("document", JSON, nullable=False),
)  # fmt: skip
Table(
    "looks", _first,
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
    Column("turn", BigInteger, nullable=False), Column("storage_free_bytes", BigInteger),
    Column("disk_bytes", BigInteger, nullable=False), Column("digest", String(64), nullable=False),
    Column("judged", String(64)), Column("facts", Text),
)  # fmt: skip
Table(
    "host_usage", _first,
    Column("host", String(63), primary_key=True), Column("vcpus", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False), Column("disk_bytes", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False, index=True),
)  # fmt: skip
Table(
    "images", _first,
    Column("name", String(63), primary_key=True), Column("sha256", String(64), nullable=False),
    Column("format", String(8), nullable=False), Column("size_bytes", BigInteger, nullable=False),
    Column("virtual_size_bytes", BigInteger, nullable=False), Column("created_at", Float, nullable=False),
    Column("guest_driver", String(40)), Column("shared", Boolean, nullable=False), Column("about", JSON),
)  # fmt: skip
Table(
    "networks", _first,
    Column("name", String(127), primary_key=True), Column("subnet", String(18), unique=True),
    Column("shared", Boolean, nullable=False), Column("uplink", JSON), Column("about", JSON),
)  # fmt: skip
Table(
    "volumes", _first,
    Column("id", String(36), primary_key=True), Column("tenant", String(63), nullable=False),
    Column("name", String(63), nullable=False), Column("size_bytes", BigInteger, nullable=False),
    Column("host", String(63), index=True), Column("vm", String(36), index=True),
    Column("state", String(20), nullable=False), Column("created_at", Float, nullable=False), Column("about", JSON),
    UniqueConstraint("tenant", "name"),
)  # fmt: skip
Table(
    "driver_bundles", _first,
    Column("sha256", String(64), primary_key=True), Column("content", JSON, nullable=False),
    Column("size_bytes", BigInteger, nullable=False), Column("key_id", String(16), nullable=False),
    Column("comment", String, nullable=False), Column("created_at", Float, nullable=False),
)  # fmt: skip
Table("driver_lock", _first, Column("id", Integer, primary_key=True), Column("document", JSON, nullable=False))
Table(
    "driver_upgrades", _first,
    Column("id", String(36), primary_key=True), Column("created_at", Float, nullable=False),
    Column("active", Boolean, nullable=False), Column("document", JSON, nullable=False),
)  # fmt: skip
Table("offerings", _first, Column("name", String(63), primary_key=True), Column("document", JSON, nullable=False))
Table(
    "vms", _first,
    Column("id", String(36), primary_key=True), Column("tenant", String(63), nullable=False),
    Column("name", String(63), nullable=False), Column("host", ForeignKey("hosts.name"), nullable=False),
    Column("image", ForeignKey("images.name")), Column("state", String(20), nullable=False),
    Column("spec", JSON, nullable=False), Column("devices", JSON, nullable=False),
    Column("addresses", JSON, nullable=False), Column("operation", String(36)),
    Column("created_at", Float, nullable=False), Column("wanted", String(10), nullable=False),
    Column("lease_end", Float, index=True), Column("freed", String(20)), Column("cpus", JSON), Column("nic", JSON),
    Column("firmware", String(10)), UniqueConstraint("tenant", "name"),
)  # fmt: skip
Table(
    "guests", _first,
    Column("vm", ForeignKey("vms.id", ondelete="CASCADE"), primary_key=True), Column("host_key", String),
    Column("document", JSON, nullable=False),
)  # fmt: skip
Table(
    "gpu_cuts", _first,
    Column("host", String(63), primary_key=True), Column("gpu", String(12), primary_key=True),
    Column("cut", String(80), nullable=False), ForeignKeyConstraint(["host", "gpu"], ["gpus.host", "gpus.address"]),
    UniqueConstraint("host", "gpu", "cut"),
)  # fmt: skip
Table(
    "slot_claims", _first,
    Column("host", String(63), primary_key=True), Column("gpu", String(12), primary_key=True),
    Column("slot", Integer, primary_key=True), Column("cut", String(80), nullable=False),
    Column("vm", ForeignKey("vms.id"), nullable=False), Column("device", Integer, nullable=False),
    CheckConstraint("slot >= 0", name="slot"),
    ForeignKeyConstraint(["host", "gpu", "cut"], ["gpu_cuts.host", "gpu_cuts.gpu", "gpu_cuts.cut"]),
    Index("ix_slot_claims_vm", "vm"),
)  # fmt: skip
Table(
    "function_claims", _first,
    Column("host", String(63), primary_key=True), Column("function", String(12), primary_key=True),
    Column("vm", ForeignKey("vms.id"), nullable=False), Column("device", Integer, nullable=False),
    UniqueConstraint("vm", "device"),
)  # fmt: skip
Table(
    "host_claims", _first,
    Column("vm", ForeignKey("vms.id"), primary_key=True),
    Column("host", ForeignKey("hosts.name"), nullable=False, index=True), Column("vcpus", Integer, nullable=False),
    Column("memory_mib", Integer, nullable=False), Column("disk_bytes", BigInteger, nullable=False),
    Column("cpus", Text), Column("nic", String(12)), Index("ix_host_claims_nic", "host", "nic", unique=True),
)  # fmt: skip
Table(
    "cpu_claims", _first,
    Column("host", String(63), primary_key=True), Column("cpu", Integer, primary_key=True),
    Column("vm", ForeignKey("vms.id"), nullable=False, index=True),
)  # fmt: skip
Table(
    "operations", _first,
    Column("id", String(36), primary_key=True), Column("kind", String(40), nullable=False),
    Column("subject", String(63), nullable=False, index=True),
    Column("subject_name", String(127), nullable=False, index=True), Column("host", String(63), nullable=False),
    Column("tenant", String(63)), Column("state", String(12), nullable=False, index=True),
    Column("attempt", Integer, nullable=False), Column("created_at", Float, nullable=False),
    Column("finished_at", Float, index=True), Column("ended_turn", BigInteger, index=True), Column("error", JSON),
    Column("remainder", JSON, nullable=False), Column("warnings", JSON, nullable=False),
    Column("inputs", JSON, nullable=False), Column("waits_for", JSON), Column("cancelled", Boolean, nullable=False),
    Column("revision", Integer, nullable=False), Column("number", Integer, nullable=False),
    Column("host_wait", String(8), index=True), Column("host_wait_since", Float),
    Column("guest_wait", String(8), index=True), Column("went_on", Integer, nullable=False), Column("asked", JSON),
)  # fmt: skip
Table(
    "steps", _first,
    Column("operation", ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True), Column("name", String(60), nullable=False),
    Column("title", Text, nullable=False), Column("state", String(12), nullable=False), Column("started_at", Float),
    Column("finished_at", Float), Column("message", Text, nullable=False),
)  # fmt: skip
Table("controllers", _first, Column("name", String(80), primary_key=True), Column("beats", Integer, nullable=False))
Table(
    "unreached_hosts", _first,
    Column("controller", String(80), primary_key=True),
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
)  # fmt: skip
Table(
    "controller_doors", _first,
    Column("name", String(80), primary_key=True), Column("address", String(280), nullable=False),
    Column("certificate", String(64), nullable=False), Column("credential", String(64), nullable=False),
)  # fmt: skip
Table(
    "invitations", _first,
    Column("id", String(12), primary_key=True), Column("digest", String(64), nullable=False),
    Column("expires_at", Float, nullable=False),
)  # fmt: skip
Table("secrets", _first, Column("id", String(100), primary_key=True), Column("blob", LargeBinary, nullable=False))
Table(
    "audit", _first,
    Column("sequence", Integer, primary_key=True), Column("at", Float, nullable=False),
    Column("actor", Text, nullable=False), Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False), Column("outcome", Text, nullable=False), Column("seal", String(64)),
    Column("proof", String(96)), Column("source", Text), Column("interface", Text), Column("user_agent", Text),
)  # fmt: skip
Table(
    "findings", _first,
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
    Column("code", String(40), primary_key=True), Column("subject", Text, primary_key=True), Column("vm", Text),
    Column("severity", String(10), nullable=False), Column("whose", String(10), nullable=False),
    Column("wanted", Text, nullable=False), Column("seen", Text, nullable=False), Column("repair", JSON),
    Column("reason", Text, nullable=False), Column("first_seen", Float, nullable=False),
    Column("last_seen", Float, nullable=False), Column("cleared_at", Float), Column("operation", String(36)),
)  # fmt: skip
Table(
    "tenants", _first,
    Column("name", String(63), primary_key=True), Column("created_at", Float, nullable=False), Column("about", JSON),
)  # fmt: skip
Table(
    "members", _first,
    Column("tenant", String(63), primary_key=True), Column("subject", String(200), primary_key=True),
    Column("role", String(16), nullable=False), Index("ix_members_subject", "subject"),
)  # fmt: skip
Table(
    "tokens", _first,
    Column("id", String(12), primary_key=True), Column("digest", String(64), nullable=False),
    Column("tenant", String(63), nullable=False, index=True), Column("role", String(16), nullable=False),
    Column("made_by", Text, nullable=False), Column("created_at", Float, nullable=False), Column("expires_at", Float),
    Column("revoked_at", Float), Column("name", String(63)), Column("last_used_at", Float),
)  # fmt: skip
Table(
    "quotas", _first,
    Column("tenant", String(63), primary_key=True), Column("resource", String(100), primary_key=True),
    Column("amount", BigInteger, nullable=False),
)  # fmt: skip
Table(
    "tenant_usage", _first,
    Column("tenant", String(63), primary_key=True), Column("resource", String(100), primary_key=True, index=True),
    Column("used", BigInteger, nullable=False),
)  # fmt: skip
Table(
    "request_keys", _first,
    Column("actor", Text, primary_key=True), Column("key", String(200), primary_key=True),
    Column("fingerprint", String(64), nullable=False), Column("at", Float, nullable=False, index=True),
    Column("status", Integer), Column("answer", Text),
)  # fmt: skip
Table("policies", _first, Column("tenant", String(63), primary_key=True), Column("document", JSON, nullable=False))


def upgrade() -> None:
    _first.create_all(op.get_bind(), checkfirst=False)
