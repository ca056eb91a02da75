# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.server.backup``: database and keys in one file, and a state directory from such a file.

After a restore nothing is done by itself: what had not ended when the backup was made is stuck, and a person decides.
Hosts obey the restored control plane and no longer the one whose database was lost (a higher fencing epoch).
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.adapters.state.age import decrypt, encrypt, identities_in, is_encrypted, recipients_of
from orchestrator.adapters.state.clock import RandomIds
from orchestrator.adapters.state.directory import AuditHead, ExecutorLock, KnownCount, LastBackup
from orchestrator.adapters.state.keys import database_key
from orchestrator.client.location import state_directory
from orchestrator.core.errors import (
    Conflict,
    InvalidInput,
    Unknown,
    VgpuctlError,
    error_to_dict,
    why_unreadable,
    why_unwritable,
)
from orchestrator.core.maintenance.maintenance import after_restore
from orchestrator.core.operation import Operation
from orchestrator.regular_file import open_regular
from orchestrator.server.error_line import print_error
from orchestrator.server.settings import load_settings
from orchestrator.store.database import Store
from orchestrator.store.secrets import SecretBox
from orchestrator.store.sqlite.backup import copy_database, url_of
from orchestrator.store.transaction import Transaction

DATABASE: Final = "vgpuctl.sqlite"
_BESIDE: Final = ("secrets", "config.yaml")
_MAX_MEMBERS: Final = 100_000
_MAX_UNPACKED_BYTES: Final = 64 * 1024**3


@dataclass(frozen=True, kw_only=True)
class Restored:
    hosts: int
    vms: int
    stuck: int
    """Operations that had not ended when the backup was made."""


def back_up(state: Path, file: Path, recipients: Sequence[str] = ()) -> None:
    """Write ``file``, readable by its owner alone. A server may be running meanwhile. ``recipients``: public keys of
    age that alone can read it; none: it is not encrypted.

    :raises InvalidInput: ``backup.nothing``, ``backup.recipient_invalid``; :raises Conflict: ``backup.exists``
    """
    if not (state / DATABASE).is_file():
        raise _nothing(state)
    sealed_for = recipients_of(recipients)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise Conflict("backup.exists", f"{file} exists", hint="give the name of a new file") from error
    except OSError as error:
        raise _unwritable(file, error) from error
    try:
        with os.fdopen(descriptor, "wb") as raw, tempfile.TemporaryDirectory(dir=state) as directory:
            copy_database(state / DATABASE, Path(directory) / DATABASE)
            with tempfile.TemporaryFile(dir=directory) if sealed_for else nullcontext(raw) as plain:
                _pack(state, Path(directory) / DATABASE, plain)
                if sealed_for:
                    plain.seek(0)
                    encrypt(plain, raw, sealed_for)
            raw.flush()
            os.fsync(raw.fileno())
        LastBackup(state).made()
    except OSError as error:
        file.unlink()
        raise _unwritable(file, error) from error
    except BaseException:
        file.unlink()
        raise


def _pack(state: Path, database: Path, target: BinaryIO) -> None:
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        archive.add(database, DATABASE)
        for name in _BESIDE:
            if (state / name).exists():
                archive.add(state / name, name)


def _unwritable(file: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        "backup.unwritable",
        f"{file} cannot be written: {why_unwritable(error)}",
        details=str(error),
        hint="name a new file where you may write and there is room",
    )


def restore(state: Path, file: Path, now: float, identity: Path | None = None) -> Restored:
    """Make ``state``, which holds no database, from a backup. ``identity``: the file with the secret key of age.

    :raises Conflict: ``backup.state_in_use``; :raises InvalidInput: ``backup.unreadable``, ``backup.encrypted``,
        ``backup.identity_invalid``, ``backup.other_identity``
    """
    _make_ready(state)
    with tempfile.TemporaryDirectory(dir=state) as directory:
        unpacked = Path(directory)
        try:
            with (
                open_regular(file) as raw,
                _plain(raw, identity, unpacked) as plain,
                tarfile.open(fileobj=plain) as archive,
            ):
                archive.extractall(unpacked, members=_bounded(archive), filter="data")
        except (OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
            why = "is no backup of vgpuctl"
            if isinstance(error, OSError) and error.errno is not None:
                why = f"cannot be read: {why_unreadable(error)}"
            raise InvalidInput(
                "backup.unreadable",
                f"{file} {why}",
                details=str(error),
                hint="name the file that 'vgpuctl server backup FILE' wrote",
            ) from error
        _check_whole(file, unpacked)
        restored = _settle(unpacked, now)
        for name in (*_BESIDE, DATABASE):  # the database last: it says that the state is whole
            if (unpacked / name).exists():
                (unpacked / name).rename(state / name)
    return restored


def _make_ready(state: Path) -> None:
    """:raises Conflict: ``backup.state_in_use``; :raises InvalidInput: ``backup.state_unusable``"""
    for name in (DATABASE, "secrets"):
        if os.path.lexists(state / name):
            raise Conflict(
                "backup.state_in_use",
                f"{state} holds {'a database' if name == DATABASE else name} already",
                hint="stop its server and move the directory away first, or set VGPUCTL_STATE to a new one",
            )
    hint = "set VGPUCTL_STATE to a directory that is yours alone (chmod go-w), or to a new one"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = state.stat().st_mode
    except OSError as error:
        raise InvalidInput(
            "backup.state_unusable", f"{state} {why_unwritable(error)}", hint=hint, details=str(error)
        ) from error
    if mode & 0o022:
        raise InvalidInput("backup.state_unusable", f"others may write to {state}", hint=hint)


def _bounded(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """What is unpacked is bounded in all, whatever the archive says.

    :raises TarError:"""
    size = 0
    for number, member in enumerate(archive):
        size += member.size
        if number >= _MAX_MEMBERS or size > _MAX_UNPACKED_BYTES:
            raise tarfile.TarError("it holds more than any backup")
        yield member


def _check_whole(file: Path, unpacked: Path) -> None:
    """A database that has something in it, and the key that its secrets are read with.

    :raises InvalidInput: ``backup.unreadable``"""
    database, key = unpacked / DATABASE, unpacked / "secrets" / "database_key"
    why = None
    if not database.is_file():
        why = "is no backup of vgpuctl"
    elif not database.stat().st_size:
        why = "holds an empty database"
    elif not key.is_file():
        why = "holds no key of its database (secrets/database_key)"
    else:
        try:
            SecretBox(key.read_bytes())
        except ValueError:
            why = "holds a key of its database that is none (secrets/database_key)"
    if why is not None:
        raise InvalidInput(
            "backup.unreadable", f"{file} {why}", hint="name the file that 'vgpuctl server backup FILE' wrote"
        )


@contextmanager
def _plain(raw: BinaryIO, identity: Path | None, directory: Path) -> Iterator[BinaryIO]:
    """The archive itself, decrypted where nobody else finds it."""
    if not is_encrypted(raw):
        yield raw
        return
    if identity is None:
        raise InvalidInput(
            "backup.encrypted", "the backup is encrypted", hint="give --identity and the file with your secret key"
        )
    with tempfile.TemporaryFile(dir=directory) as plain:
        decrypt(raw, plain, identities_in(identity))
        plain.seek(0)
        yield plain


def _settle(unpacked: Path, now: float) -> Restored:
    """Let the hosts obey this database, and let nothing in it go on by itself."""
    key = database_key(unpacked / "secrets" / "database_key")
    store = Store(url_of(unpacked / DATABASE), key=key, new_site=RandomIds().new_uuid())
    restored = settle_in(store, now)
    store.close()
    return restored


def settle_restored(state: Path, now: float) -> Restored:
    """After the database itself was restored (pg_restore, a file put back): the hosts obey it from now on.

    :raises InvalidInput: ``backup.nothing``; :raises Conflict: ``serve.already_running``
    """
    url = load_settings().database_url
    if not state.is_dir() or (url is None and not (state / DATABASE).is_file()):
        raise _nothing(state)
    lock = ExecutorLock(state / "executor.lock")
    key = database_key(state / "secrets" / "database_key")
    url = url or url_of(state / DATABASE)
    store = Store(url, key=key, new_site=RandomIds().new_uuid())
    restored = settle_in(store, now)
    _settle_audit(store, AuditHead(state), now)
    store.settle(KnownCount(state).read(), now)
    store.close()
    lock.release()
    return restored


def _settle_audit(store: Store, noted: AuditHead, now: float) -> None:
    """The records that are there now are the ones to go on with; which ones were known before is put on record."""
    before = noted.read()
    with store.begin() as tx:
        head = tx.audit.head()
        outcome = f"restored: the head was {before}"
        tx.audit.append(at=now, actor="server", action="settle_restored", subject="audit", outcome=outcome)
    if head is not None:
        noted.write(str(head))


def settle_in(store: Store, now: float) -> Restored:
    """Hosts obey this database from now on. What it takes for unfinished is stuck, and nothing that hosts have is
    changed until somebody has settled whose it is (``Host.restored``)."""
    stuck = 0
    with store.begin() as tx:
        tx.events.skip()
        hosts = tx.hosts.list()
        for host in hosts:
            if host.state != "forgotten":
                tx.hosts.update(replace(host, epoch=host.epoch + 1, restored="unseen"))
        for maintenance in tx.maintenances.active():
            tx.maintenances.put(after_restore(maintenance))
        unfinished = tx.operations.list(unfinished=True, limit=1_000_000)
        for operation in (*unfinished, *(one for host in hosts for one in tx.operations.stuck_on(host.name))):
            _stop(tx, operation, now)
            stuck += 1
        vms = len(tx.vms.list())
    return Restored(hosts=len(hosts), vms=vms, stuck=stuck)


def _stop(tx: Transaction, operation: Operation, now: float) -> None:
    error = Unknown(
        "operation.restored",
        "it had not ended when the backup was made",
        hint=f"'vgpuctl operation retry {operation.id}' writes down what became of it, as its host shows it",
    )
    left = tuple(f"unknown, from step: {step.title}" for step in operation.steps if step.state != "pending")
    tx.operations.update(replace(operation, state="stuck", finished_at=now, error=error_to_dict(error), remainder=left))
    vm = tx.vms.find_id(operation.subject)
    if vm is not None and vm.operation == operation.id:
        tx.vms.update(replace(vm, state="stuck"))


def main() -> int:
    """Exit codes as everywhere."""
    parser = argparse.ArgumentParser(prog="vgpuctl server")
    parser.add_argument("act", choices=["backup", "restore", "settle-restored"])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--recipient", action="append", default=[])
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--output", default="table")
    words = parser.parse_args()
    state = state_directory()
    try:
        if words.act == "backup":
            _of_sqlite()
            back_up(state, words.file, words.recipient)
            kept = "only its recipients can read it" if words.recipient else "keep it secret"
            print(f"{words.file} holds the database and the keys of {state}: {kept}. Images are not in it.")
        else:
            now = time.time()
            settles = words.act == "settle-restored"
            done = settle_restored(state, now) if settles else restore(state, words.file, now, words.identity)
            _tell(state, done, as_data=words.output != "table")
    except VgpuctlError as error:
        if words.output == "json":
            print(json.dumps({"error": error_to_dict(error)}), file=sys.stderr)
        else:
            print_error(error)
        return error.exit_code
    return 0


def _tell(state: Path, done: Restored, *, as_data: bool) -> None:
    if as_data:
        print(json.dumps({"state": str(state), **asdict(done)}))
        return
    print(f"{state}: {done.hosts} hosts, {done.vms} VMs, {done.stuck} operations that had not ended are stuck")
    print("nothing on hosts was changed: once it runs, 'vgpuctl server settle-restored' lists what is newer")


def _nothing(state: Path) -> InvalidInput:
    return InvalidInput("backup.nothing", f"there is no database in {state}", hint="is VGPUCTL_STATE right?")


def _of_sqlite() -> None:
    if load_settings().database_server is not None:
        raise InvalidInput(
            "backup.not_sqlite",
            "the database is on a PostgreSQL server",
            hint="back it up with pg_dump, and the directory 'secrets' with it",
        )


if __name__ == "__main__":
    sys.exit(main())
