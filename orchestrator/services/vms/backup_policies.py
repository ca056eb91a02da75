# SPDX-License-Identifier: Apache-2.0
"""Policies of backups: what tenants say of them, and how their VMs stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from orchestrator.core.errors import Conflict, Stuck, error_to_dict
from orchestrator.core.names import check_name
from orchestrator.core.operation import OperationState
from orchestrator.core.vms.backup_policy import (
    MAX_POLICIES_OF_TENANT,
    NONE_YET,
    BackupPolicy,
    BackupTurn,
    PolicyBackups,
    VmBackupStanding,
    VmBackupState,
    check_policy,
    standing,
)
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.site_time import SiteTime
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vm_checks import known_vm
from orchestrator.services.vms.backups import known_target
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_COUNTED_EVERY_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class PolicyInfo:
    """A policy and the VMs that it is about now."""

    policy: BackupPolicy
    standings: tuple[VmBackupStanding, ...]
    """By name of the VM."""


@dataclass(frozen=True, kw_only=True)
class BackupPolicyService:
    """Those of tenants. What is due by them is begun by reconcile/backups.py."""

    store: Store
    clock: Clock
    time: SiteTime
    _counted: dict[float, Counter[VmBackupState]] = field(default_factory=dict, init=False)
    """How many VMs stood how, by the moment of the monotonic clock."""

    def counts(self) -> Counter[VmBackupState]:
        """How many VMs stand how; at most a minute old, as looking at ten thousand takes seconds."""
        now = self.clock.monotonic()
        for at, counted in tuple(self._counted.items()):
            if now - at < _COUNTED_EVERY_S:
                return counted
        counted = Counter(each.state for info in self.list(None) for each in info.standings)
        self._counted.clear()
        self._counted[now] = counted
        return counted

    def create(self, tenant: str, name: str, target: str | None, vms: Sequence[str], wanted: Mapping[str, Any]) -> None:
        """``target``: None: the only one. ``vms``: names; none: all of the tenant, now and later. ``wanted``: of the
        policy's other members, those that are not as usual.

        :raises InvalidInput: ``backup_policy.name_invalid``, ``backup.policy_invalid``,
            ``maintenance.window_invalid``, ``backup.which_target``
        :raises NotFound: ``tenant.unknown``, ``vm.unknown``, ``backup.target_unknown``
        :raises Conflict: ``backup.policy_exists``, ``backup.too_many_policies``"""
        check_name(name, what="backup policy")
        with self.store.begin() as tx:
            known_tenant(tx, tenant)
            own = tx.backup_policies.list((tenant,))
            if any(policy.name == name for policy in own):
                hint = f"'vgpuctl backup policy set {name} --tenant {tenant}' changes it"
                raise Conflict("backup.policy_exists", f"there is already a backup policy {name}", hint=hint)
            if len(own) >= MAX_POLICIES_OF_TENANT:
                hint = f"'vgpuctl backup policy delete {own[0].name} --tenant {tenant}' removes one"
                raise Conflict("backup.too_many_policies", f"tenant {tenant} has {len(own)} policies", hint=hint)
            policy = BackupPolicy(
                tenant=tenant, name=name, target=known_target(tx, target), vms=_ids(tx, tenant, vms),
                created_at=self.time.now(), **wanted,
            )  # fmt: skip
            tx.backup_policies.add(check_policy(policy))
            self._note(tx, "create_backup_policy", policy)

    def list(self, tenants: tuple[str, ...] | None) -> tuple[PolicyInfo, ...]:
        """Of these tenants (None: of all), by tenant and name."""
        now = self.time.now()
        with self.store.read() as tx:
            policies = tx.backup_policies.list(tenants)
            of_all = tx.backup_policies
            made, turns = (of_all.made(tenants=tenants), of_all.turns(tenants)) if policies else ({}, {})
            states = tx.backup_policies.states(turns.values())
            vms = {tenant: tx.vms.list(tenant=tenant) for tenant in {policy.tenant for policy in policies}}

        turns = {key: _with_what_is_open(turn, states, made.get(key, NONE_YET)) for key, turn in turns.items()}

        def of(policy: BackupPolicy, vm: Vm) -> VmBackupStanding:
            key = (policy.tenant, policy.name, vm.id)
            its = (vm.id, vm.spec.name, vm.created_at)
            return standing(policy, its, made.get(key, NONE_YET), turns.get(key), now)

        return tuple(
            PolicyInfo(
                policy=policy,
                standings=tuple(of(policy, vm) for vm in vms[policy.tenant] if policy.covers(vm.id)),
            )
            for policy in policies
        )

    def get(self, tenant: str, name: str) -> PolicyInfo:
        """:raises NotFound: ``backup.policy_unknown``"""
        with self.store.read() as tx:
            tx.backup_policies.get(tenant, name)
        return next(info for info in self.list((tenant,)) if info.policy.name == name)

    def change(self, tenant: str, name: str, wanted: Mapping[str, Any]) -> None:
        """``wanted``: new values by member, of ``vms`` names; the rest stays. What it keeps less of is removed after
        the next backup.

        :raises InvalidInput: ``backup.policy_invalid``, ``maintenance.window_invalid``
        :raises NotFound: ``backup.policy_unknown``, ``vm.unknown``, ``backup.target_unknown``"""
        with self.store.begin() as tx:
            policy = tx.backup_policies.get(tenant, name)
            values = dict(wanted)
            if "vms" in values:
                values["vms"] = _ids(tx, tenant, values["vms"])
            if "target" in values:
                values["target"] = known_target(tx, values["target"])
            tx.backup_policies.change(check_policy(replace(policy, **values)))
            self._note(tx, "change_backup_policy", policy)

    def delete(self, tenant: str, name: str) -> None:
        """Its backups stay, and nothing removes them by itself any more.

        :raises NotFound: ``backup.policy_unknown``"""
        with self.store.begin() as tx:
            policy = tx.backup_policies.get(tenant, name)
            tx.backup_policies.remove(tenant, name)
            self._note(tx, "delete_backup_policy", policy)

    def _note(self, tx: Transaction, action: str, policy: BackupPolicy) -> None:
        now = self.clock.now()
        tx.audit.append(at=now, actor=actor(), action=action, subject=policy.full_name, outcome="done")


def _with_what_is_open(
    turn: BackupTurn, states: Mapping[str, tuple[str, OperationState]], made: PolicyBackups
) -> BackupTurn:
    """With what somebody has to decide: nothing more is begun while an operation is stuck, and what could not be
    removed stays."""
    its, error = None if turn.operation is None else states.get(turn.operation), turn.error
    if its is not None and its[1] == "stuck":
        hint = f"'vgpuctl operation show {turn.operation}' tells why"
        stuck = Stuck("operation.stuck", f"operation {turn.operation} is stuck: {hint}", hint=hint)
        error = error_to_dict(stuck) | {"refused": True}
    elif error is None and made.unremoved:
        hint = "'vgpuctl operation list --kind delete_backup' tells why"
        left = Conflict("backup.not_removed", f"backups that it could not remove: {made.unremoved}; {hint}", hint=hint)
        error = error_to_dict(left) | {"refused": True}
    return replace(turn, error=error)


def _ids(tx: Transaction, tenant: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(known_vm(tx, tenant, name).id for name in names))
