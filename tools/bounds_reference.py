# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.bounds_reference`` writes docs/reference/bounds.md: what has an end, and which."""

from __future__ import annotations

from typing import Final, NamedTuple

from orchestrator.api.event_feed import MAX_STREAMS_OF_TENANT
from orchestrator.api.file_bodies import MAX_OF_TENANT as MAX_FILES
from orchestrator.api.limits import MAX_BODY_BYTES
from orchestrator.api.routes.guest_streams import MAX_STREAMS_PER_TENANT
from orchestrator.api.schemas.vms import MAX_SSH_KEYS
from orchestrator.core.floating_addresses import MAX_OF_TENANT as MAX_FLOATING
from orchestrator.core.labels import MAX_LABELS
from orchestrator.core.protocol import OBSERVED_BYTES
from orchestrator.core.security_groups import MAX_GROUPS, MAX_RULES, MAX_USES
from orchestrator.core.tenancy.audit import MAX_RECORD_TEXT
from orchestrator.core.tenancy.request_key import KEPT_S, MAX_ANSWER, MAX_KEYS
from orchestrator.core.tenancy.tenant import MAX_ENDED_TOKENS, MAX_MEMBERS, MAX_TOKENS_OF_TENANT
from orchestrator.core.vms.backup import MAX_OF_TENANT as MAX_BACKUPS
from orchestrator.core.vms.backup_policy import MAX_POLICIES_OF_TENANT as MAX_POLICIES
from orchestrator.core.vms.console_session import MAX_OF_ACTOR
from orchestrator.core.vms.network import MAX_ADDRESSES_OF_TENANT, MAX_CARDS, MAX_OF_TENANT
from orchestrator.core.vms.vm import MAX_USER_DATA_BYTES
from orchestrator.core.vms.volume import MAX_ATTACHED
from orchestrator.core.vms.volume import MAX_OF_TENANT as MAX_VOLUMES
from orchestrator.core.webhook import MAX_OF_TENANT as MAX_WEBHOOKS
from orchestrator.services.audit import MOST, WINDOW_S
from orchestrator.services.change_allowance import AT_ONCE, PER_S
from orchestrator.store.disk_copies import MAX_OF_PAIR
from orchestrator.store.web_sessions import MAX_ENDED_OF_CREDENTIAL
from tools.tree import ROOT

PAGE: Final = ROOT / "docs/reference/bounds.md"
_HEAD: Final = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# What has an end

Written by `make docs` from `tools/bounds_reference.py`. What requests leave behind is bounded for each
tenant or caller, and what hosts tell for each host (`orchestrator/core/hosts/snapshot_rules.py`), so that none of them
fills what is everybody's.

| what | of whom | at most | unit | refused with |
|---|---|---|---|---|
"""


class Bound(NamedTuple):
    """``tables``: of the database, whose rows it bounds. ``code``: empty where nothing is refused."""

    what: str
    whose: str
    most: str
    unit: str
    code: str
    tables: tuple[str, ...] = ()


BOUNDS: Final = (
    Bound("body of a request", "request", f"{MAX_BODY_BYTES:,}", "bytes", "request.too_large"),
    Bound("VMs, and what they claim", "tenant", "its quota, and what hosts have", "VMs", "quota.exceeded",
          ("vms", "gpu_cuts", "slot_claims", "function_claims", "host_claims", "cpu_claims", "port_addresses", "guests",
           "vgpu_metadata", "suspended_vms", "secrets")),
    Bound("SSH keys", "VM", f"{MAX_SSH_KEYS:,}", "keys", "request.invalid"),
    Bound("user data", "VM", f"{MAX_USER_DATA_BYTES:,}", "bytes", "request.invalid"),
    Bound("labels", "VM or host", f"{MAX_LABELS:,}", "labels", "label.too_many"),
    Bound("network cards", "VM", f"{MAX_CARDS:,}", "networks", "request.invalid"),
    Bound("volumes attached", "VM", f"{MAX_ATTACHED:,}", "volumes", "volume.too_many"),
    Bound("volumes", "tenant", f"{MAX_VOLUMES:,}", "volumes", "volume.used_up", ("volumes",)),
    Bound("disk of VMs and volumes", "tenant", "its quota", "MiB", "quota.exceeded", ("tenant_usage", "pool_claims")),
    Bound("networks", "tenant", f"{MAX_OF_TENANT:,}", "networks", "network.too_many", ("networks",)),
    Bound("security groups", "tenant", f"{MAX_GROUPS:,}", "groups", "group.too_many", ("security_groups",)),
    Bound("rules", "security group", f"{MAX_RULES:,}", "rules", "group.too_many_rules"),
    Bound("what it is on", "security group", f"{MAX_USES:,}", "VMs, cards, networks", "group.too_many_uses",
          ("security_group_uses",)),
    Bound("floating addresses", "tenant", f"{MAX_FLOATING:,}", "addresses", "address.too_many",
          ("floating_addresses",)),
    Bound("subnets together", "tenant", f"{MAX_ADDRESSES_OF_TENANT:,}", "addresses", "network.too_large"),
    Bound("tokens that are good", "tenant", f"{MAX_TOKENS_OF_TENANT:,}", "tokens", "token.too_many", ("tokens",)),
    Bound("tokens that are over", "tenant", f"{MAX_ENDED_TOKENS:,}", "tokens", ""),
    Bound("members", "tenant", f"{MAX_MEMBERS:,}", "members", "member.too_many", ("members",)),
    Bound("idempotency keys", "caller", f"{MAX_KEYS:,} for {KEPT_S / 3600:g} h", "keys", "", ("request_keys",)),
    Bound("an answer kept under one", "request", f"{MAX_ANSWER:,}", "bytes", ""),
    Bound("a text of the audit", "record", f"{MAX_RECORD_TEXT:,}", "characters", "", ("audit",)),
    Bound("refusals on record", "tenant, or all strangers", f"{MOST} in {WINDOW_S:g} s", "records", ""),
    Bound("changes on record", "tenant", f"{AT_ONCE:,}, and {PER_S:g} a second more", "changes",
          "server.too_many_changes"),
    Bound("files that are sent", "tenant", f"{MAX_FILES}", "at once", "server.files_busy"),
    Bound("streams and console logs", "tenant", f"{MAX_STREAMS_PER_TENANT}", "at once", "stream.too_many"),
    Bound("consoles that a ticket opens, and tickets", "caller", f"{MAX_OF_ACTOR}", "at once", "console.too_many",
          ("console_sessions",)),
    Bound("browsers' sessions that were logged out of", "token or user", f"{MAX_ENDED_OF_CREDENTIAL}", "sessions", "",
          ("ended_web_sessions",)),
    Bound("operations that have ended", "site", "setting `operations_kept_days`", "days", "",
          ("operations", "steps")),
    Bound("how GPUs were cleaned after VMs", "site", "730", "days", "", ("gpu_cleanings",)),
    Bound("copies of disks, measured", "two hosts", f"{MAX_OF_PAIR}", "copies", "", ("disk_copies",)),
    Bound("streams of events", "tenant", f"{MAX_STREAMS_OF_TENANT}", "at once", "server.streams_busy"),
    Bound("events", "site", "settings `events_kept`, `events_kept_days`", "events, days", "", ("events",)),
    Bound("backups", "tenant", f"{MAX_BACKUPS:,}", "backups", "backup.too_many", ("backups",)),
    Bound("backup policies", "tenant", f"{MAX_POLICIES}", "policies", "backup.too_many_policies",
          ("backup_policies", "backup_turns")),
    Bound("webhooks", "tenant", f"{MAX_WEBHOOKS}", "webhooks", "webhook.too_many", ("webhooks",)),
    Bound("what a host tells", "look", f"{OBSERVED_BYTES:,}", "bytes", "agent.answer_invalid",
          ("snapshots", "looks", "gpus", "findings")),
)  # fmt: skip

OF_OPERATORS: Final = frozenset({
    "backup_targets", "meta", "hosts", "host_usage", "images", "driver_bundles", "driver_lock", "maintenances",
    "offerings", "pools", "controllers", "unreached_hosts", "controller_doors", "invitations",
    "tenants", "quotas", "policies",
})  # fmt: skip
"""Tables that operators and servers alone add rows to, or that have a row for each host or tenant."""


def page() -> str:
    """The whole page."""
    rows = (
        f"| {one.what} | {one.whose} | {one.most} | {one.unit} | {f'`{one.code}`' if one.code else '-'} |\n"
        for one in BOUNDS
    )
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
