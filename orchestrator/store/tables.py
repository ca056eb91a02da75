# SPDX-License-Identifier: Apache-2.0
"""All tables. Constraints are the judge: what must never be, the database refuses."""

from __future__ import annotations

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

metadata = MetaData(naming_convention={
    "ix": "ix_%(column_0_label)s", "uq": "uq_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s", "fk": "fk_%(table_name)s_%(column_0_N_name)s",
})  # fmt: skip

meta = Table("meta", metadata, Column("key", String(40), primary_key=True), Column("value", Text, nullable=False))

hosts = Table(
    "hosts", metadata,
    Column("name", String(63), primary_key=True), Column("address", String(255), nullable=False),
    Column("port", Integer, nullable=False), Column("provisioning_user", String(64), nullable=False),
    Column("host_key", Text, nullable=False), Column("state", String(20), nullable=False),
    Column("state_reason", Text), Column("cordoned", Boolean, nullable=False), Column("rdma_nics", Text),
    Column("cordoned_for", String(80)), Column("cordon", JSON(none_as_null=True)), Column("restored", String(8)),
    Column("machine_id", String(64)), Column("epoch", Integer, nullable=False), Column("last_seen_at", Float),
    Column("vcpu_overcommit", Float), Column("memory_overcommit", Float), Column("pinnable_cpus", Text),
    Column("allow_unconfined", Boolean, nullable=False), Column("labels", JSON, nullable=False),
    UniqueConstraint("address", "port"), Index("ix_hosts_state", "state", "cordoned"),
)  # fmt: skip

gpus = Table(
    "gpus", metadata,
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True), Column("mig_found", Boolean),
    Column("address", String(12), primary_key=True), Column("functions_by_us", Boolean, nullable=False),
    Column("mig_layout", JSON(none_as_null=True)), Column("uuid", Text), Column("serial", Text), Column("model", Text),
    Column("health", JSON(none_as_null=True)), Column("power", JSON(none_as_null=True)),
)  # fmt: skip
"""``mig_layout``: what the GPU is kept for (``rows.layout_of``); by a row in ``gpu_cuts`` no VM claims a part of it.
``health``: ``rows.health_of``. ``power``: power.py. ``uuid`` to ``model``: of its driver. ``mig_found``: before us."""

snapshots = Table(
    "snapshots", metadata, Column("document", JSON, nullable=False),
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
)  # fmt: skip
"""Large; written only when a look found something else than the one before."""

observations = Table(
    "looks", metadata,
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
    Column("turn", BigInteger, nullable=False), Column("storage_free_bytes", BigInteger),
    Column("disk_bytes", BigInteger, nullable=False), Column("digest", String(64), nullable=False),
    Column("judged", String(64)), Column("facts", Text),
)  # fmt: skip
"""The last look at each host in brief: the newest turn (operations.ended_turn) when it began, all that changes from one
to the next by itself, the digest of the rest, the digest that was last compared with what is wanted, and what placement
needs of it (core/attachments/host_facts.py). Without facts: an older version has written the snapshot."""

host_usage = Table(
    "host_usage", metadata,
    Column("host", String(63), primary_key=True), Column("vcpus", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False), Column("disk_bytes", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False, index=True),
)  # fmt: skip
"""The sum of all claims on a host, and when anything was last changed there that placement sees (fleet.py).
No foreign key: the row stays when the host goes, so that everyone hears of it."""

images = Table(
    "images", metadata,
    Column("name", String(63), primary_key=True), Column("sha256", String(64), nullable=False),
    Column("format", String(8), nullable=False), Column("size_bytes", BigInteger, nullable=False),
    Column("virtual_size_bytes", BigInteger, nullable=False), Column("created_at", Float, nullable=False),
    Column("guest_driver", String(40)), Column("shared", Boolean, nullable=False),
    Column("about", JSON(none_as_null=True)),
)  # fmt: skip
"""Of a tenant by ``tenant/name``, of the site by their names."""

networks = Table(
    "networks", metadata,
    Column("name", String(127), primary_key=True), Column("subnet", String(18), unique=True),
    Column("shared", Boolean, nullable=False), Column("uplink", JSON(none_as_null=True)),
    Column("about", JSON(none_as_null=True)), Column("overlay", JSON(none_as_null=True)),
)  # fmt: skip
"""By their names on hosts."""

security_groups = Table(
    "security_groups", metadata,
    Column("tenant", String(63), primary_key=True), Column("name", String(63), primary_key=True),
    Column("rules", JSON, nullable=False), Column("about", JSON(none_as_null=True)),
)  # fmt: skip

security_group_uses = Table(
    "security_group_uses", metadata,
    Column("tenant", String(63), nullable=False), Column("name", String(63), nullable=False),
    Column("vm", ForeignKey("vms.id", ondelete="CASCADE"), index=True),
    Column("network", ForeignKey("networks.name", ondelete="CASCADE"), index=True),
    ForeignKeyConstraint(("tenant", "name"), ("security_groups.tenant", "security_groups.name"), ondelete="CASCADE"),
)  # fmt: skip
"""What a group is on: a VM (``network`` null), a network (``vm`` null), or the VM's card on it."""

volumes = Table(
    "volumes", metadata,
    Column("id", String(36), primary_key=True), Column("tenant", String(63), nullable=False),
    Column("name", String(127), nullable=False), Column("size_bytes", BigInteger, nullable=False),
    Column("host", String(63), index=True), Column("vm", String(36), index=True),
    Column("state", String(20), nullable=False), Column("created_at", Float, nullable=False),
    Column("about", JSON(none_as_null=True)), Column("pool", String(23)), Column("max_bytes_per_s", BigInteger),
    Column("max_iops", BigInteger), Column("snapshot_of", String(36), index=True), Column("read_only_of", String(36)),
    Column("encryption", String(8), nullable=False, server_default="none"), UniqueConstraint("tenant", "name"),
    Column("quiesced", String(160)), Index("ix_volumes_readers", "read_only_of", "vm", unique=True),
)  # fmt: skip
driver_bundles = Table(
    "driver_bundles", metadata,
    Column("sha256", String(64), primary_key=True), Column("content", JSON, nullable=False),
    Column("size_bytes", BigInteger, nullable=False), Column("key_id", String(16), nullable=False),
    Column("comment", String, nullable=False), Column("created_at", Float, nullable=False),
)  # fmt: skip
driver_lock = Table(
    "driver_lock", metadata, Column("id", Integer, primary_key=True), Column("document", JSON, nullable=False)
)
maintenances = Table(
    "maintenances", metadata, Column("id", String(36), primary_key=True), Column("created_at", Float, nullable=False),
    Column("active", Boolean, nullable=False), Column("document", JSON, nullable=False),
)  # fmt: skip
"""One row, with id 1, or none."""

offerings = Table(
    "offerings", metadata, Column("name", String(63), primary_key=True), Column("document", JSON, nullable=False)
)

VM_ORDERS = ("name", "state", "profile_lower", "vcpus", "memory_mib", "lease_end", "created_at", "host")
"""What lists of VMs are sorted by beside tenant and name."""
vms = Table(
    "vms", metadata,
    Column("id", String(36), primary_key=True), Column("tenant", String(63), nullable=False),
    Column("name", String(63), nullable=False), Column("host", ForeignKey("hosts.name"), nullable=False),
    Column("image", ForeignKey("images.name")), Column("state", String(20), nullable=False),
    Column("spec", JSON, nullable=False), Column("devices", JSON, nullable=False),
    Column("addresses", JSON, nullable=False), Column("operation", String(36)),
    Column("created_at", Float, nullable=False), Column("wanted", String(10), nullable=False),
    Column("lease_end", Float), Column("freed", String(20), key="deallocated"),
    Column("cpus", JSON(none_as_null=True)), Column("nic", JSON(none_as_null=True)), Column("firmware", String(10)),
    Column("ports", JSON(none_as_null=True)), Column("profile_lower", String(63), nullable=False, server_default=""),
    Column("vcpus", Integer, nullable=False, server_default="0"),
    Column("memory_mib", Integer, nullable=False, server_default="0"), Column("suspended_bytes", BigInteger),
    Column("snapshots", JSON(none_as_null=True)), UniqueConstraint("tenant", "name"),
    *(Index(f"ix_vms_{name}", *dict.fromkeys((name, "tenant", "name"))) for name in VM_ORDERS),
)  # fmt: skip
"""``profile_lower``, ``vcpus`` and ``memory_mib`` are of ``spec``, for the order of lists."""

port_addresses = Table(
    "port_addresses", metadata,
    Column("network", String(127), primary_key=True), Column("address", String(39), primary_key=True),
    Column("vm", ForeignKey("vms.id", ondelete="CASCADE"), index=True),
    Column("mac", String(17)), Column("gave_back", String(63)), UniqueConstraint("network", "mac"),
)  # fmt: skip
"""On networks of kind ovn; ``vms.ports`` says the same. ``mac``: in a card's first row. ``gave_back``: the tenant."""

floating_addresses = Table(
    "floating_addresses", metadata,
    Column("address", String(15), primary_key=True), Column("network", String(127), nullable=False),
    Column("tenant", String(63), nullable=False, index=True), Column("card_network", String(127)),
    Column("vm", ForeignKey("vms.id", ondelete="SET NULL"), index=True),
)  # fmt: skip

guests = Table(
    "guests", metadata, Column("vm", ForeignKey("vms.id", ondelete="CASCADE"), primary_key=True),
    Column("host_key", String, nullable=True), Column("document", JSON, nullable=False),
)  # fmt: skip
"""What was put into the guest of a VM (core/guest/guest.py)."""

vgpu_metadata = Table(
    "vgpu_metadata", metadata,
    Column("vm", ForeignKey("vms.id", ondelete="CASCADE"), primary_key=True), Column("by_gpu", JSON, nullable=False),
)  # fmt: skip
"""What drivers last said of a VM's vGPUs (core/gpu/vgpu_metadata.py), by the PCI address of their GPU."""

suspended_vms = Table(
    "suspended_vms", metadata,
    Column("vm", ForeignKey("vms.id", ondelete="CASCADE"), primary_key=True), Column("facts", Text, nullable=False),
)  # fmt: skip
disk_copies = Table(
    "disk_copies", metadata,
    Column("operation", String(36), primary_key=True), Column("size_bytes", BigInteger, nullable=False),
    *(Column(name, String(63), nullable=False) for name in ("source", "target")), Column("at", Float, nullable=False),
    *(Column(name, BigInteger) for name in ("sent_bytes", "memory_bytes", "dirty_per_s", "device_bytes")),
    *(Column(name, Float) for name in ("low_s", "high_s", "pause_s", "pause_low_s", "pause_high_s")),
    Column("seconds", Float, nullable=False), Index("ix_disk_copies_pair", "source", "target", "at"),
)  # fmt: skip

gpu_cuts = Table(
    "gpu_cuts", metadata,
    Column("host", String(63), primary_key=True), Column("gpu", String(12), primary_key=True),
    Column("cut", String(80), nullable=False), UniqueConstraint("host", "gpu", "cut"),
    ForeignKeyConstraint(["host", "gpu"], ["gpus.host", "gpus.address"]),
)  # fmt: skip
"""How a GPU is cut while anything is claimed on it; claims refer to it, so they cannot differ."""

slot_claims = Table(
    "slot_claims", metadata,
    Column("host", String(63), primary_key=True), Column("gpu", String(12), primary_key=True),
    Column("slot", Integer, primary_key=True), Column("cut", String(80), nullable=False),
    Column("vm", ForeignKey("vms.id"), nullable=False), Column("device", Integer, nullable=False),
    ForeignKeyConstraint(["host", "gpu", "cut"], ["gpu_cuts.host", "gpu_cuts.gpu", "gpu_cuts.cut"]),
    Column("cleaned", String(20)), CheckConstraint("slot >= 0", name="slot"), Index("ix_slot_claims_vm", "vm"),
)  # fmt: skip
"""``device``: which of the VM's, from 0; the same in ``function_claims``. ``cleaned``: how; nothing is there since."""

function_claims = Table(
    "function_claims", metadata,
    Column("host", String(63), primary_key=True), Column("function", String(12), primary_key=True),
    Column("vm", ForeignKey("vms.id"), nullable=False), Column("device", Integer, nullable=False),
    UniqueConstraint("vm", "device"),
)  # fmt: skip

host_claims = Table(
    "host_claims", metadata,
    Column("vm", ForeignKey("vms.id"), primary_key=True),
    Column("host", ForeignKey("hosts.name"), nullable=False, index=True),
    Column("vcpus", Integer, nullable=False), Column("memory_mib", Integer, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False), Column("cpus", Text), Column("nic", String(12)),
    Index("ix_host_claims_nic", "host", "nic", unique=True),
)  # fmt: skip
"""``nic``: the function of a network card that is the VM's alone."""

cpu_claims = Table(
    "cpu_claims", metadata,
    Column("host", String(63), primary_key=True), Column("cpu", Integer, primary_key=True),
    Column("vm", ForeignKey("vms.id"), nullable=False, index=True),
)  # fmt: skip
"""CPUs that VMs have alone; ``host_claims.cpus`` says the same of each VM at once."""

OPERATION_ORDERS = ("created_at", "kind", "state", "subject_name")
operations = Table(
    "operations", metadata,
    Column("id", String(36), primary_key=True), Column("kind", String(40), nullable=False),
    Column("subject", String(63), nullable=False, index=True), Column("subject_name", String(127), nullable=False),
    Column("host", String(63), nullable=False), Column("tenant", String(63)),
    Column("state", String(12), nullable=False), Column("attempt", Integer, nullable=False),
    Column("created_at", Float, nullable=False), Column("finished_at", Float, index=True),
    Column("ended_turn", BigInteger, index=True), Column("error", JSON(none_as_null=True)),
    Column("remainder", JSON, nullable=False), Column("warnings", JSON, nullable=False),
    Column("inputs", JSON, nullable=False), Column("waits_for", JSON(none_as_null=True)),
    Column("cancelled", Boolean, nullable=False), Column("revision", Integer, nullable=False),
    Column("number", Integer, nullable=False), Column("host_wait", String(8), index=True),
    Column("host_wait_since", Float), Column("guest_wait", String(8), index=True),
    Column("went_on", Integer, nullable=False), Column("asked", JSON(none_as_null=True)),
    *(Index(f"ix_operations_{name}", name, "id") for name in OPERATION_ORDERS),
)  # fmt: skip
"""Clocks order nothing. ``number``: of its subject's operations, as they were stored. ``ended_turn``: grows with every
end of an operation; an observation that began when the newest was at least this has seen all that the operation did."""

steps = Table(
    "steps", metadata,
    Column("operation", ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True), Column("name", String(60), nullable=False),
    Column("title", Text, nullable=False),
    Column("state", String(12), nullable=False), Column("started_at", Float), Column("finished_at", Float),
    Column("message", Text, nullable=False),
)  # fmt: skip

controllers = Table(
    "controllers", metadata, Column("name", String(80), primary_key=True), Column("beats", Integer, nullable=False)
)

unreached_hosts = Table(
    "unreached_hosts", metadata,
    Column("controller", String(80), primary_key=True),
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
)  # fmt: skip

controller_doors = Table(
    "controller_doors", metadata,
    Column("name", String(80), primary_key=True), Column("address", String(280), nullable=False),
    Column("certificate", String(64), nullable=False), Column("credential", String(64), nullable=False),
)  # fmt: skip

invitations = Table(
    "invitations", metadata,
    Column("id", String(12), primary_key=True), Column("digest", String(64), nullable=False),
    Column("expires_at", Float, nullable=False),
)  # fmt: skip

secrets = Table(
    "secrets", metadata, Column("id", String(100), primary_key=True), Column("blob", LargeBinary, nullable=False)
)

audit = Table(
    "audit", metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True), Column("at", Float, nullable=False),
    Column("actor", Text, nullable=False), Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False), Column("outcome", Text, nullable=False),
    Column("seal", String(64)), Column("proof", String(96)),
    Column("source", Text), Column("interface", Text), Column("user_agent", Text),
)  # fmt: skip

findings = Table(
    "findings", metadata,
    Column("host", ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True),
    Column("code", String(40), primary_key=True), Column("subject", Text, primary_key=True),
    Column("vm", Text), Column("severity", String(10), nullable=False), Column("whose", String(10), nullable=False),
    Column("wanted", Text, nullable=False), Column("seen", Text, key="observed", nullable=False),
    Column("repair", JSON(none_as_null=True)), Column("reason", Text, nullable=False),
    Column("first_seen", Float, nullable=False), Column("last_seen", Float, nullable=False),
    Column("cleared_at", Float), Column("operation", String(36)),
)  # fmt: skip

tenants = Table(
    "tenants", metadata,
    Column("name", String(63), primary_key=True), Column("created_at", Float, nullable=False),
    Column("about", JSON(none_as_null=True)),
)  # fmt: skip

# The tenant may be "*": a role that holds everywhere. So it is no foreign key.
members = Table(
    "members", metadata,
    Column("tenant", String(63), primary_key=True), Column("subject", String(200), primary_key=True),
    Column("role", String(16), nullable=False), Index("ix_members_subject", "subject"),
)  # fmt: skip

tokens = Table(
    "tokens", metadata,
    Column("id", String(12), primary_key=True), Column("digest", String(64), nullable=False),
    Column("tenant", String(63), nullable=False, index=True), Column("role", String(16), nullable=False),
    Column("made_by", Text, nullable=False), Column("created_at", Float, nullable=False), Column("expires_at", Float),
    Column("revoked_at", Float), Column("name", String(63)), Column("last_used_at", Float),
)  # fmt: skip

# The tenant may be "*": the pool that all tenants share.
quotas = Table(
    "quotas", metadata,
    Column("tenant", String(63), primary_key=True), Column("resource", String(100), primary_key=True),
    Column("amount", BigInteger, nullable=False),
)  # fmt: skip

tenant_usage = Table(
    "tenant_usage", metadata,
    Column("tenant", String(63), primary_key=True), Column("resource", String(100), primary_key=True, index=True),
    Column("used", BigInteger, nullable=False),
)  # fmt: skip
"""What the VMs and volumes of a tenant hold together of every resource of quotas; rows stay, at nothing."""

request_keys = Table(
    "request_keys", metadata,
    Column("actor", Text, primary_key=True), Column("key", String(200), primary_key=True),
    Column("fingerprint", String(64), nullable=False), Column("at", Float, nullable=False, index=True),
    Column("status", Integer), Column("answer", Text),
)  # fmt: skip

policies = Table(
    "policies", metadata, Column("tenant", String(63), primary_key=True), Column("document", JSON, nullable=False)
)

events = Table(
    "events", metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False, index=True), Column("noun", String(20), nullable=False),
    Column("name", Text, nullable=False), Column("change", String(20), nullable=False),
    Column("tenant", String(63), index=True), Column("host", String(63)), Column("subject", Text),
    Column("state", String(20)), Column("details", JSON, nullable=False), sqlite_autoincrement=True,
)  # fmt: skip
"""What happened, in the order in which readers are told; a number is never given twice, though all rows may go."""

webhooks = Table(
    "webhooks", metadata,
    Column("id", String(36), primary_key=True), Column("tenant", String(63), nullable=False),
    Column("name", String(63), nullable=False), Column("url", Text, nullable=False),
    Column("nouns", JSON, nullable=False), Column("created_at", Float, nullable=False),
    Column("position", BigInteger, nullable=False), Column("failed", Integer, nullable=False),
    Column("failing_since", Float), Column("next_at", Float, nullable=False), Column("why", Text),
    Column("dead", Boolean, nullable=False), UniqueConstraint("tenant", "name"),
)  # fmt: skip
"""The tenant may be "*": the pool's."""

console_sessions = Table(
    "console_sessions", metadata,
    Column("id", String(64), primary_key=True), Column("vm", String(36), nullable=False),
    Column("kind", String(9), nullable=False), Column("actor", Text, nullable=False),
    Column("bound", String(64), nullable=False), Column("until", Float, nullable=False),
    Column("opened_at", Float), Column("claimed_at", Float),
)  # fmt: skip
"""Tickets for consoles, and consoles that are open; gone when nobody renews them, so no VM is referred to."""

ended_web_sessions = Table(
    "ended_web_sessions", metadata, Column("id", String(32), primary_key=True),
    Column("credential", String(64), nullable=False), Column("until", Float, nullable=False),
)  # fmt: skip
