# SPDX-License-Identifier: Apache-2.0
"""Tenants and who belongs to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.volume_key import TenantKey, key_bytes
from orchestrator.core.labels import KEPT_FOR, show_changes
from orchestrator.core.names import check_name, near
from orchestrator.core.tenancy.access import EVERYWHERE, unknown_tenant
from orchestrator.core.tenancy.tenant import (
    DEFAULT_TENANT,
    MAX_MEMBERS,
    Member,
    Tenant,
    check_role,
    check_subject,
    subject_spellings,
)
from orchestrator.core.units import show_count
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class TenantService:
    """Create, look, delete; members come and go."""

    store: Store
    clock: Clock

    def create(self, name: str) -> Tenant:
        """The same again is answered with what is there.

        :raises InvalidInput: ``tenant.name_invalid``
        """
        check_name(name, what="tenant")
        with self.store.begin() as tx:
            known = tx.tenants.find(name)
            if known is not None:
                return known
            tenant = Tenant(name=name, created_at=self.clock.now())
            tx.tenants.add(tenant)
            self._note(tx, "create_tenant", name)
        return tenant

    def ensure_default(self) -> None:
        """One person needs to know nothing of tenants."""
        self.create(DEFAULT_TENANT)

    def list(self, visible: tuple[str, ...] | None) -> tuple[Tenant, ...]:
        """By name; ``visible``: only these, None: all."""
        with self.store.read() as tx:
            return tuple(tenant for tenant in tx.tenants.list() if visible is None or tenant.name in visible)

    def get(self, name: str) -> Tenant:
        """:raises NotFound: ``tenant.unknown``"""
        with self.store.read() as tx:
            return known_tenant(tx, name)

    def describe(self, name: str, description: str | None, labels: Mapping[str, str | None]) -> Tenant:
        """None as a description: it stays, as a label's value: it goes.

        :raises NotFound: ``tenant.unknown``; :raises InvalidInput: ``label.…``"""
        with self.store.begin() as tx:
            tenant_now = known_tenant(tx, name)
            tenant = replace(tenant_now, about=tenant_now.about.changed(description, labels))
            if tenant.about != tenant_now.about:
                tx.tenants.update(tenant)
                self._note(tx, f"set_tenant {show_changes(description, labels)}", name)
        return tenant

    def delete(self, name: str) -> None:
        """With its networks, floating addresses, security groups, members, tokens, quota and policy. What was done for
        it stays on record, and is nobody's but the operator's: a tenant that is called so later does not see it.

        :raises NotFound: ``tenant.unknown``
        :raises Conflict: ``tenant.in_use``, ``tenant.default``
        """
        if name == DEFAULT_TENANT:
            raise Conflict(
                "tenant.default",
                "the default tenant stays",
                hint="VMs without --tenant are its; limit it: 'vgpuctl quota set default vms=0'",
            )
        with self.store.begin() as tx:
            known_tenant(tx, name)
            vms = tx.vms.list(tenant=name)
            if vms:
                raise Conflict(
                    "tenant.in_use",
                    f"tenant {name} has {show_count(len(vms), 'VM')}",
                    hint=f"'vgpuctl list-vms --tenant {name}'",
                )
            volumes = tx.volumes.list(tenant=name, snapshots=False)
            if volumes:
                raise Conflict(
                    "tenant.in_use",
                    f"tenant {name} has {len(volumes)} volumes",
                    hint=f"'vgpuctl volume list --tenant {name}'",
                )
            images = [image.short for image in tx.images.list() if image.tenant == name]
            if images:
                hint = f"'vgpuctl image remove {images[0]} --tenant {name}'"
                raise Conflict("tenant.in_use", f"tenant {name} has {len(images)} images", hint=hint)
            if backups := tx.backups.list((name,)):
                hint = f"'vgpuctl backup list --tenant {name}'"
                raise Conflict("tenant.in_use", f"tenant {name} has {len(backups)} backups", hint=hint)
            _check_keeps_nothing(tx, name)
            tx.operations.disown(name)
            tx.webhooks.remove_of(name)
            tx.backup_policies.remove_of(name)
            _remove_networks_and_groups(tx, name)
            tx.tenants.remove(name)
            self._note(tx, "delete_tenant", name)

    def key(self, name: str) -> TenantKey | None:
        """None: it has no encrypted volume yet, or its key was destroyed. :raises NotFound: ``tenant.unknown``"""
        with self.store.read() as tx:
            known_tenant(tx, name)
            return tx.volume_keys.of_tenant(name)

    def rotate_key(self, name: str, own: str | None = None) -> TenantKey | None:
        """Passphrases of its encrypted volumes are closed with a new key. ``own``: that it brings (:func:`key_bytes`);
        None: the site draws one, if there was one.

        :raises NotFound: ``tenant.unknown``; :raises InvalidInput: ``tenant.key_invalid``"""
        brought = None if own is None else key_bytes(own)
        with self.store.begin() as tx:
            known_tenant(tx, name)
            tx.volume_keys.rotate(name, brought)
            self._note(tx, "rotate_tenant_key" if brought is None else "bring_tenant_key", name)
            return tx.volume_keys.of_tenant(name)

    def revoke_key(self, name: str) -> int:
        """What is on its encrypted volumes and disks is gone; how many these were. Later ones have a new key.

        :raises NotFound: ``tenant.unknown``; :raises Conflict: ``tenant.key_in_use``"""
        with self.store.begin() as tx:
            known_tenant(tx, name)
            for volume in tx.volumes.list(tenant=name):
                vm = None if volume.vm is None or volume.encryption != "luks" else tx.vms.find_id(volume.vm)
                if vm is not None and vm.state != "stopped":
                    words = f"VM {vm.spec.name} is {vm.state} and has encrypted volume {volume.name}"
                    hint = f"'vgpuctl stop-vm {vm.spec.name} --tenant {name}'"
                    raise Conflict("tenant.key_in_use", words, hint=hint)
            for vm in tx.vms.list(tenant=name):
                if vm.spec.encrypted and vm.state != "stopped":
                    hint = f"'vgpuctl stop-vm {vm.spec.name} --tenant {name}'"
                    words = f"VM {vm.spec.name} is {vm.state} and has an encrypted disk"
                    raise Conflict("tenant.key_in_use", words, hint=hint)
            number = tx.volume_keys.revoke(name)
            self._note(tx, f"revoke_tenant_key of {number} volumes", name)
        return number

    def members(self, tenant: str) -> tuple[Member, ...]:
        """By subject. ``*``: those whose roles hold everywhere.

        :raises NotFound: ``tenant.unknown``
        """
        with self.store.read() as tx:
            _check_place(tx, tenant)
            return tx.tenants.members(tenant=tenant)

    def put_member(self, member: Member) -> None:
        """A subject has one role in a tenant; a new one replaces it.

        :raises InvalidInput: ``member.subject_invalid``, ``role.invalid``; :raises NotFound: ``tenant.unknown``
        :raises Conflict: ``member.too_many``
        """
        member = replace(member, subject=check_subject(member.subject))
        check_role(member.role, member.tenant)
        with self.store.begin() as tx:
            _check_place(tx, member.tenant)
            if _there(tx, member.tenant, member.subject) == (member,):
                return
            _remove(tx, member.tenant, member.subject)
            if len(tx.tenants.members(tenant=member.tenant)) >= MAX_MEMBERS:
                raise Conflict(
                    "member.too_many",
                    f"{MAX_MEMBERS} members are as many as there can be",
                    hint=f"'vgpuctl tenant members {member.tenant}' shows them, remove-member takes one away; "
                    "a group of an identity provider is one member",
                )
            tx.tenants.put_member(member)
            self._note(tx, f"add_member {member.role}", f"{member.tenant}/{member.subject}")

    def remove_member(self, tenant: str, subject: str) -> None:
        """Gone already is fine. :raises NotFound: ``tenant.unknown``"""
        subject = check_subject(subject)
        with self.store.begin() as tx:
            _check_place(tx, tenant)
            if _there(tx, tenant, subject):
                _remove(tx, tenant, subject)
                self._note(tx, "remove_member", f"{tenant}/{subject}")

    def _note(self, tx: Transaction, action: str, subject: str) -> None:
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome="done")


def known_tenant(tx: Transaction, name: str) -> Tenant:
    """For callers that have a role in the tenant, or everywhere: only those may be told which one was meant.

    :raises NotFound: ``tenant.unknown``"""
    tenant = tx.tenants.find(name)
    if tenant is None:
        hint = near(name, [tenant.name for tenant in tx.tenants.list()], "vgpuctl tenant list")
        raise NotFound("tenant.unknown", unknown_tenant(name).message, hint=hint)
    return tenant


def _check_keeps_nothing(tx: Transaction, tenant: str) -> None:
    """A tenant that is called so later would get what was kept for this one."""
    hosts = [host.name for host in tx.hosts.list() if dict(host.labels).get(KEPT_FOR) == tenant]
    offerings = [offering.name for offering in tx.offerings.list() if offering.kept_for == tenant]
    for what, kept, hint in (
        ("hosts", hosts, f"vgpuctl host set {{}} --unlabel {KEPT_FOR}"),
        ("offerings", offerings, "vgpuctl profile remove {}"),
    ):
        if kept:
            raise Conflict(
                "tenant.in_use",
                f"{len(kept)} {what} are kept for tenant {tenant}: {', '.join(kept[:5])}",
                hint=f"'{hint.format(kept[0])}'",
            )


def _remove_networks_and_groups(tx: Transaction, tenant: str) -> None:
    for group in tx.security_groups.list(tenant):
        tx.security_groups.remove(tenant, group.name)
    for floating in tx.floating_addresses.list(tenant):
        tx.floating_addresses.remove(floating)
    for network in tx.networks.list():
        if network.tenant == tenant:
            tx.networks.remove(network.name)


def _there(tx: Transaction, tenant: str, subject: str) -> tuple[Member, ...]:
    """In each of its spellings."""
    spellings = frozenset(subject_spellings(subject))
    return tuple(member for member in tx.tenants.members(tenant=tenant) if member.subject in spellings)


def _remove(tx: Transaction, tenant: str, subject: str) -> None:
    for spelling in subject_spellings(subject):
        tx.tenants.remove_member(tenant, spelling)


def _check_place(tx: Transaction, tenant: str) -> None:
    if tenant != EVERYWHERE:
        known_tenant(tx, tenant)
