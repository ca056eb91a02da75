# SPDX-License-Identifier: Apache-2.0
"""What is taken out of the program on purpose, and the tests that should notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """``before`` stands exactly once in the file; ``after`` stands there instead."""

    file: str
    before: str
    after: str


@dataclass(frozen=True)
class Mutation:
    """``tests``: arguments of pytest, as few as should do."""

    removed: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def _one(removed: str, file: str, before: str, after: str, *tests: str) -> Mutation:
    return Mutation(removed, (Edit(f"orchestrator/{file}", before, after),), tests)


_MATRIX = "tests/operations/test_every_fault.py"
_GIVING_BACK = "tests/operations/test_giving_back.py"
_VGPUS = "tests/unit/agent/test_vgpus.py"
_STORE = "tests/contract/store/test_store.py"
_SCHEMA = "store/migrations/versions/0001_the_first_schema.py"

MUTATIONS = (
    _one(
        "undo: the disk of a VM that was not made to the end stays",
        "operations/steps/storage.py",
        "do=_create_volume, undo=_delete_volume,",
        "do=_create_volume, undo=lambda _: None,",
        _MATRIX, "-k", "create-stopped-l40s and not postgresql",
    ),
    _one(
        "undo: an adoption that failed leaves its entry in the host's ledger",
        "operations/steps/adopt.py",
        "do=_adopt, undo=_release,",
        "do=_adopt, undo=lambda _: None,",
        _MATRIX, "-k", "adopt-t4 and not start and not delete and not postgresql",
    ),
    _one(
        "undo: a host that is not given back after all lacks its virtual functions",
        "operations/steps/host.py",
        "    if _is_known(context):\n        _enable_functions(context)\n",
        "    return\n",
        _GIVING_BACK, "-k", "functions_again",
    ),
    _one(
        "undo: a host that is not given back after all takes no VMs any more",
        "operations/steps/host.py",
        "do=_check_empty, undo=back_to_ready)",
        "do=_check_empty, undo=lambda _: None)",
        _GIVING_BACK, "-k", "takes_vms_again",
    ),
    _one(
        "retry: what got stuck on its way back goes onward",
        "operations/stuck.py",
        "any(step.state in _GOING_BACK for step in operation.steps)",
        "False",
        _GIVING_BACK, "-k", "goes_on_back",
    ),
    _one(
        "undo: the claim of a VM that was not made stays",
        "operations/steps/vm_record.py",
        "do=claim_of, undo=forget_vm,",
        "do=claim_of, undo=lambda _: None,",
        _MATRIX, "-k", "adopt-t4 and not start and not delete and not postgresql",
    ),
    _one(
        "card: a VM is restored at the address of its GPU, whichever card is there",
        "agent/gpu_cards.py",
        "        if now.uuid != known.uuid:\n            raise",
        "        if not now.uuid:\n            raise",
        "tests/unit/agent/test_gpu_cards.py",
    ),
    _one(
        "card: a driver that does not say which card it is is taken at its address",
        "agent/gpu_cards.py",
        "        if now is None:\n            raise",
        "        if now is None:\n            return\n            raise",
        "tests/unit/agent/test_gpu_cards.py",
    ),
    _one(
        "card: what is claimed on a card that was moved stays at its old address",
        "store/cards.py",
        "        if moved:\n            self._move(host, moved)\n",
        "",
        "tests/operations/test_gpu_cards.py",
    ),
    _one(
        "fence on the host: an older attempt or epoch is let in",
        "agent/ledger.py",
        "if token.epoch < epoch or (token.epoch == epoch and token.attempt < seen):",
        "if False:",
        "tests/unit/agent/test_ledger.py",
    ),
    _one(
        "fence in the database: an attempt that was overtaken writes",
        "operations/fencing.py",
        "            raise Suspended\n",
        "            pass\n",
        "tests/operations/test_records.py",
    ),
    _one(
        "fsync: the agent's ledger is not on the disk when a change returns",
        "agent/ledger_file.py",
        "PRAGMA synchronous=EXTRA",
        "PRAGMA synchronous=NORMAL",
        "tests/unit/agent/test_durability.py",
    ),
    _one(
        "fsync: a volume's content is not on the disk before it has its name",
        "agent/images/files.py",
        "        sync(part)\n",
        "",
        "tests/unit/agent/test_durability.py",
    ),
    _one(
        "fsync: the control plane's SQLite database loses its last commits with the power",
        "store/database.py",
        "        self._flush()\n        if self._checkpoints",
        "        if self._checkpoints",
        "tests/contract/store/test_flush.py",
    ),
    _one(
        "lock: actions on one VM run at the same time in the agent",
        "agent/turns.py",
        "            with lock:\n                yield\n",
        "            yield\n",
        "tests/unit/agent/test_durability.py",
    ),
    _one(
        "lock: two servers execute operations of one state directory",
        "adapters/state/lock.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "tests/unit/adapters/state/test_lock.py",
    ),
    _one(
        "lock: those who draw on the pool do not come one after the other on PostgreSQL",
        "store/tenant_usage.py",
        ".with_for_update()",
        "",
        "tests/contract/store/test_tenant_usage.py", "tests/contract/test_quotas.py",
    ),
    Mutation(
        "constraint: one slot of a GPU can be claimed by two VMs",
        (
            Edit(
                f"orchestrator/{_SCHEMA}",
                'sa.PrimaryKeyConstraint("host", "gpu", "slot", name=op.f("pk_slot_claims")),',
                'sa.PrimaryKeyConstraint("host", "gpu", "slot", "vm", name=op.f("pk_slot_claims")),',
            ),
        ),
        (_STORE, "-k", "claim and sqlite"),
    ),
    _one(
        "check: a host is claimed beyond what it has",
        "store/vms.py",
        "        if not self._usage.take(claim, capacity):\n",
        "        if self._usage.take(claim, capacity) is None:\n",
        _STORE, "-k", "sqlite",
    ),
    _one(
        "check: a new VM is not held against the quota",
        "services/vms/vms.py",
        "        within_quota(tx, plan.vm)\n        plan = replace(",
        "        plan = replace(",
        "tests/contract/test_quotas.py", "-k", "leaves_nothing",
    ),
    _one(
        "check: a claim is not held against what others have taken since it was planned",
        "store/database.py",
        'within_limits=how == "beside claims"',
        "within_limits=False",
        "tests/contract/test_quotas.py", "-k", "plans_again and sqlite",
    ),
    _one(
        "count: what a deleted VM held stays counted",
        "store/vms.py",
        "amounts_of(gone), {})",
        "{}, {})",
        "tests/contract/store/test_tenant_usage.py", "-k", "sqlite",
    ),
    _one(
        "check: an adopted VM is not held against the quota",
        "services/vms/adopting.py",
        "            within_quota(tx, vm)\n",
        "",
        "tests/operations/test_adopting.py",
    ),
    _one(
        "audit: what begins has no record in its transaction",
        "services/begin.py",
        'outcome="accepted",',
        'outcome="",',
        "tests/operations/test_records.py",
    ),
    _one(
        "audit: a record that was changed is not told from its seal",
        "core/tenancy/audit.py",
        "if record.seal is not None and not _same(record.seal, seal_of(key, before, record)):",
        "if False:",
        "tests/contract/test_audit.py",
    ),
    _one(
        "access: a token is believed by its id alone",
        "core/tenancy/tenant.py",
        "same = hmac.compare_digest(self.digest, digest_of(text))",
        "same = True",
        "tests/unit/api/test_permissions.py", "-k", "another_secret",
    ),
    _one(
        "access: a revoked token still opens",
        "core/tenancy/tenant.py",
        "self.revoked_at is None and ",
        "",
        "tests/unit/api/test_permissions.py", "-k", "revoked",
    ),
    _one(
        "access: everybody who may use VMs may adopt domains of the pool",
        "api/permissions.py",
        '"POST /v1/vms/adopt": Rule("pool", _OPERATE),',
        '"POST /v1/vms/adopt": Rule("body", _USE),',
        "tests/unit/api/test_permissions.py", "-k", "takes_over",
    ),
    _one(
        "secret: user data is stored as it is",
        "store/secrets.py",
        '"blob": self._box.close(secret_id, text)',
        '"blob": text.encode()',
        "tests/contract/test_planted_secrets.py", "-k", "user_data",
    ),
    _one(
        "owner: a vGPU is made before the ledger says whose it is",
        "agent/attachments/mdev.py",
        "        self._ledger.claim(key, action.vm, detail=wanted, until_reboot=True)\n",
        "",
        _VGPUS,
    ),
    _one(
        "owner: a vGPU that a process has open is removed",
        "agent/attachments/mdev.py",
        "        self._files.check_unused(there.directory, action.uuid)\n",
        "",
        _VGPUS,
    ),
    _one(
        "owner: what nobody of ours has made counts as a leftover of ours",
        "core/diff/orphans.py",
        '        return "foreign"\n    return "ours"',
        '        return "ours"\n    return "ours"',
        "tests/unit/core/test_diff.py",
    ),
    _one(
        "owner: a disk of an adopted VM may be deleted with it",
        "operations/steps/storage.py",
        "return vm if vm is not None and vm.spec.adopted is None else None",
        "return vm",
        "tests/operations/test_adopting.py",
    ),
)  # fmt: skip
