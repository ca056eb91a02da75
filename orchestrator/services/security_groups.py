# SPDX-License-Identifier: Apache-2.0
"""Security groups of tenants: their rules, and the VMs, cards and networks that they are on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.labels import show_changes
from orchestrator.core.names import check_name
from orchestrator.core.security_groups import (
    ANYWHERE,
    DEFAULT_GROUP,
    MAX_GROUPS,
    MAX_USES,
    GroupUse,
    NamedUse,
    SecurityGroup,
    SecurityRule,
    changed_rules,
    default_group,
    naming,
    show_rules,
    unknown_group,
)
from orchestrator.core.tenancy.quota import group_amounts
from orchestrator.core.vms.network import Network, short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.changes_in_ovn import ChangesInOvn
from orchestrator.services.networks import network_for
from orchestrator.services.tenancy.quotas import more_within_quota
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import known_vm
from orchestrator.services.vms.ports import check_converted
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_Change = Callable[[Transaction, SecurityGroup, Iterable[str]], SecurityGroup]
"""Of a group, among all that its tenant has."""


@dataclass(frozen=True, kw_only=True)
class GroupInfo:
    """A group, and what it is on by name."""

    group: SecurityGroup
    uses: tuple[NamedUse, ...]


@dataclass(frozen=True, kw_only=True)
class SecurityGroupService:
    """A tenant's default group is there without having been made."""

    store: Store
    clock: Clock
    in_ovn: ChangesInOvn

    def create(self, tenant: str, name: str, rules: Sequence[SecurityRule] | None = None) -> GroupInfo:
        """``rules`` None: it reaches everything, and nothing reaches it. The same again is answered with what is there.

        :raises InvalidInput: ``group.name_invalid``, ``group.rule_invalid``
        :raises NotFound: ``tenant.unknown``, ``group.unknown``
        :raises Conflict: ``group.exists``, ``group.too_many``, ``group.too_many_rules``
        """
        check_name(name, what="group")
        with self.store.begin() as tx:
            groups = _groups(tx, tenant)
            empty = SecurityGroup(tenant=tenant, name=name)
            group = replace(empty, rules=changed_rules(empty, (ANYWHERE,) if rules is None else rules, ()))
            existing = groups.get(name)
            if existing is not None and (rules is None or existing.rules == group.rules):
                return _info(tx, existing)
            if existing is not None:
                hint = f"'vgpuctl security-group show {name}' has its rules; change them, or choose another name"
                raise Conflict("group.exists", f"there is already a group {name} with other rules", hint=hint)
            if len(groups) >= MAX_GROUPS:
                hint = f"delete one; 'vgpuctl security-group list --tenant {tenant}' shows them"
                raise Conflict("group.too_many", f"tenant {tenant} has {MAX_GROUPS} groups", hint=hint)
            _check_named(group.rules, {*groups, name})
            more_within_quota(tx, tenant, group_amounts(group))
            tx.security_groups.add(group)
            self._note(tx, f"create_security_group {show_rules(group.rules, ())}", group)
            return _info(tx, group)

    def list(self, tenants: tuple[str, ...] | None) -> tuple[GroupInfo, ...]:
        """Of these tenants, None: of all, by tenant and name; default ones too."""
        with self.store.read() as tx:
            visible = [known.name for known in tx.tenants.list() if tenants is None or known.name in tenants]
            stored = tx.security_groups.list(visible[0] if len(visible) == 1 else None)
            changed = {group.tenant for group in stored if group.name == DEFAULT_GROUP}
            groups = [*stored, *(default_group(tenant) for tenant in visible if tenant not in changed)]
            ordered = sorted(groups, key=lambda group: (group.tenant, group.name))
            return tuple(_info(tx, group) for group in ordered if group.tenant in visible)

    def get(self, tenant: str, name: str) -> GroupInfo:
        """:raises NotFound: ``group.unknown``, ``tenant.unknown``"""
        with self.store.read() as tx:
            return _info(tx, _known(_groups(tx, tenant), name))

    def describe(self, tenant: str, name: str, description: str | None, labels: Mapping[str, str | None]) -> GroupInfo:
        """None as a description: it stays, as a label's value: it goes.

        :raises NotFound: ``group.unknown``, ``tenant.unknown``; :raises InvalidInput: ``label.…``"""

        def described(_tx: Transaction, group: SecurityGroup, _known: Iterable[str]) -> SecurityGroup:
            return replace(group, about=group.about.changed(description, labels))

        action = f"set_security_group {show_changes(description, labels)}"
        with self.store.begin() as tx:  # OVN has no part in it
            return self._stored(tx, tenant, name, described, action)

    def change_rules(
        self, tenant: str, name: str, add: Sequence[SecurityRule] = (), remove: Sequence[SecurityRule] = ()
    ) -> GroupInfo:
        """All of it or nothing; added again is fine.

        :raises InvalidInput: ``group.rule_invalid``
        :raises NotFound: ``group.unknown``, ``group.rule_unknown``, ``tenant.unknown``
        :raises Conflict: ``group.too_many_rules``
        :raises Retryable: ``ovn.unreachable``, ``ovn.busy``; :raises Unknown: ``ovn.not_in_effect``"""

        def with_rules(tx: Transaction, group: SecurityGroup, known: Iterable[str]) -> SecurityGroup:
            rules = changed_rules(group, add, remove)
            _check_named(rules, known)
            more_within_quota(tx, tenant, {"rules": max(0, len(rules) - len(group.rules))})
            return replace(group, rules=rules)

        return self._changed(tenant, name, with_rules, f"change_security_group {show_rules(add, remove)}")

    def change_uses(
        self, tenant: str, name: str, add: Sequence[NamedUse] = (), remove: Sequence[NamedUse] = ()
    ) -> GroupInfo:
        """On which VMs, cards and networks it is. Put there again, or taken from where it is not, is fine.

        :raises NotFound: ``group.unknown``, ``vm.unknown``, ``network.unknown``, ``tenant.unknown``
        :raises InvalidInput: ``group.on_nothing``
        :raises Conflict: ``group.network_kind``, ``group.too_many_uses``, ``group.not_of_vm``, ``network.converting``
        :raises Retryable: ``ovn.unreachable``, ``ovn.busy``; :raises Unknown: ``ovn.not_in_effect``"""

        def with_uses(tx: Transaction, group: SecurityGroup, _known: Iterable[str]) -> SecurityGroup:
            added = [_use(tx, tenant, name, use) for use in add]
            gone = {_use(tx, tenant, name, use, new=False) for use in remove}
            uses = tuple(dict.fromkeys(use for use in (*group.uses, *added) if use not in gone))
            if len(uses) > MAX_USES:
                raise Conflict(
                    "group.too_many_uses",
                    f"group {name} would be on {len(uses)} things, and no group is on more than {MAX_USES}",
                    hint="put it on the network: --network NAME without --vm",
                )
            return replace(group, uses=uses)

        words = [*(f"+{use}" for use in add), *(f"-{use}" for use in remove)]
        return self._changed(tenant, name, with_uses, f"apply_security_group {', '.join(words)}")

    def delete(self, tenant: str, name: str) -> None:
        """:raises NotFound: ``group.unknown``, ``tenant.unknown``
        :raises Conflict: ``group.default``; ``group.in_use`` with what it is on or which rules
            name it"""
        with self.store.begin() as tx:
            groups = _groups(tx, tenant)
            group = _known(groups, name)
            if name == DEFAULT_GROUP:
                hint = "its rules can be changed: 'vgpuctl security-group show default'"
                raise Conflict("group.default", "the default group stays", hint=hint)
            uses, rules = _info(tx, group).uses, naming(name, groups.values())
            if uses:
                hint = f"'vgpuctl security-group show {name}' has all of it; withdraw takes it from there"
                raise Conflict("group.in_use", f"group {name} is on {uses[0]}", hint=hint)
            if rules:
                hint = f"'vgpuctl security-group show {rules[0]}' shows them"
                raise Conflict("group.in_use", f"rules of {', '.join(rules[:5])} name {name}", hint=hint)
            tx.security_groups.remove(tenant, name)
            self._note(tx, "delete_security_group", group)

    def _changed(self, tenant: str, name: str, change: _Change, action: str) -> GroupInfo:
        with self.in_ovn.changing(tenant), self.store.begin() as tx:
            return self._stored(tx, tenant, name, change, action)

    def _stored(self, tx: Transaction, tenant: str, name: str, change: _Change, action: str) -> GroupInfo:
        groups = _groups(tx, tenant)
        before = _known(groups, name)
        group = change(tx, before, groups)
        if (group, group.about) != (before, before.about):
            stored = any(known.name == name for known in tx.security_groups.list(tenant))
            (tx.security_groups.update if stored else tx.security_groups.add)(group)
            self._note(tx, action, group)
        return _info(tx, group)

    def _note(self, tx: Transaction, action: str, group: SecurityGroup) -> None:
        tx.audit.append(
            at=self.clock.now(), actor=actor(), action=action, subject=group.full_name, outcome="done"
        )  # fmt: skip


def _groups(tx: Transaction, tenant: str) -> dict[str, SecurityGroup]:
    """By name, with the default one. :raises NotFound: ``tenant.unknown``"""
    known_tenant(tx, tenant)
    stored = {group.name: group for group in tx.security_groups.list(tenant)}
    return {DEFAULT_GROUP: default_group(tenant), **stored}


def _known(groups: Mapping[str, SecurityGroup], name: str) -> SecurityGroup:
    if name not in groups:
        raise unknown_group(name, groups)
    return groups[name]


def _check_named(rules: Iterable[SecurityRule], known: Iterable[str]) -> None:
    names = frozenset(known)
    for rule in rules:
        if rule.group is not None and rule.group not in names:
            raise unknown_group(rule.group, names)


def _use(tx: Transaction, tenant: str, group: str, use: NamedUse, *, new: bool = True) -> GroupUse:
    """``new``: it is to be put there."""
    if use.vm is None and use.network is None:
        raise InvalidInput("group.on_nothing", "a group is on a VM, a network or both", hint="--vm or --network")
    vm = None if use.vm is None else known_vm(tx, tenant, use.vm)
    network = None if use.network is None else network_for(tx, tenant, use.network)
    if vm is not None and network is not None and network.name not in vm.spec.networks:
        theirs = ", ".join(map(short_name, vm.spec.networks))
        raise Conflict("group.not_of_vm", f"VM {use.vm} has no card on {use.network}", hint=f"it is on {theirs}")
    if new:
        for its in [network] if network is not None else map(tx.networks.get, () if vm is None else vm.spec.networks):
            _check_kind(group, its, use.vm)
            check_converted(tx, its)
    return GroupUse(vm=None if vm is None else vm.id, network=None if network is None else network.name)


def _check_kind(group: str, network: Network, vm: str | None) -> None:
    """:raises Conflict: ``group.network_kind``: nothing there would keep to it"""
    if network.overlay is not None:
        return
    kind = "NAT of each host" if network.uplink is None else "a bridge of hosts"
    raise Conflict(
        "group.network_kind",
        f"network {network.short} is {kind}, where nothing would keep to group {group}",
        hint="groups are for networks over all hosts, which OVN makes"
        if vm is None
        else f"for another card of {vm} name its network: --vm {vm} --network NAME",
    )


def check_no_group(tx: Transaction, vm: Vm, network: Network) -> None:
    """Before a VM gets a card there: each group that is on the whole VM must hold for that card too.

    :raises Conflict: ``group.network_kind``"""
    whole = [group.name for group in tx.security_groups.list(vm.spec.tenant) if GroupUse(vm=vm.id) in group.uses]
    if network.overlay is not None or not whole:
        return
    name, group = vm.spec.name, whole[0]
    cards = map(short_name, vm.spec.networks)
    alone = ", ".join(f"'vgpuctl security-group apply {group} --vm {name} --network {card}'" for card in cards)
    raise Conflict(
        "group.network_kind",
        f"group {group} is on every card of {name}, and nothing would keep to it on network {network.short}",
        hint=f"put it on its cards alone: {alone}, then 'vgpuctl security-group withdraw {group} --vm {name}'",
    )


def _info(tx: Transaction, group: SecurityGroup) -> GroupInfo:
    uses = []
    for use in group.uses:
        vm = None if use.vm is None else tx.vms.find_id(use.vm)
        network = None if use.network is None else short_name(use.network)
        uses.append(NamedUse(vm=None if vm is None else vm.spec.name, network=network))
    return GroupInfo(group=group, uses=tuple(uses))
