# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl host import``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orchestrator.cli import enrolment
from orchestrator.cli.output import shown
from orchestrator.cli.session import Format, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.core.errors import Fatal, error_to_dict

if TYPE_CHECKING:
    from orchestrator.cli.inventory.importing import Imported
    from orchestrator.cli.inventory.wanted import WantedHost

PLANNED: Final = (
    field("NAME", "name", Fit.WHOLE),
    Column("ADDRESS", lambda host: f"{shown(host['user'])}@{shown(host['address'])} port {host['port']}", Fit.WHOLE),
    field("GPUS", "gpus", Fit.WHOLE),
    field("KEY", "provisioning_key"),
)
IMPORTED: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("ADDRESS", "address", Fit.WHOLE, spare=True),
    field("RESULT", "result", Fit.WHOLE),
    Column("WHY", lambda host: shown(host["error"]["message"] if host["error"] else None), Fit.WRAP),
)


def import_hosts(
    ctx: typer.Context,
    inventory: Annotated[
        list[str], typer.Option("--inventory", "-i", help="Ansible inventory: file, directory or plugin's file.")
    ],
    limit: Annotated[str | None, typer.Option("--limit", "-l", help="Only these hosts or groups (a pattern).")] = None,
    vault_password_file: Annotated[
        str | None, typer.Option("--vault-password-file", help="What ansible-vault encrypted is read with it.")
    ] = None,
    provisioning_key: Annotated[
        Path | None, typer.Option("--provisioning-key", help="Private key for hosts whose variables name none.")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, max=64, help="So many hosts at once.")] = 8,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept the host keys that answer now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which hosts would be enrolled.")] = False,
) -> None:
    """Enrol the hosts of an Ansible inventory. Those enrolled already are left alone."""
    from orchestrator.cli.inventory.importing import enrol_all, split_present, with_fingerprints
    from orchestrator.cli.inventory.reading import read_inventory
    from orchestrator.cli.inventory.wanted import wanted_hosts

    session = session_of(ctx)
    wanted = wanted_hosts(read_inventory(inventory, limit, vault_password_file))
    new, present = split_present(session.client.hosts(), wanted)
    if dry_run:
        show_list(
            [_planned(host, provisioning_key) for host in new], PLANNED, session.format, "all of them are enrolled"
        )
        return
    keys = _keys(new, provisioning_key)
    known, lost = with_fingerprints(session, new, at_once=parallel, yes=yes)
    imported = [*present, *lost, *enrol_all(session, known, keys, at_once=parallel)]
    _tell(sorted(imported, key=lambda host: host.name), session.format)


def _keys(wanted: Sequence[WantedHost], default: Path | None) -> dict[str, str]:
    """The text of each host's key; every file is read before any host is touched."""
    texts: dict[Path | None, str] = {}
    for host in wanted:
        path = host.key_file or default
        if path not in texts:
            texts[path] = enrolment.private_key(path)
    return {host.name: texts[host.key_file or default] for host in wanted}


def _planned(host: WantedHost, default: Path | None) -> dict[str, Any]:
    key = host.key_file or default
    named = {"name": host.name, "address": host.address, "port": host.port, "user": host.user, "gpus": host.gpus}
    return {**named, "provisioning_key": None if key is None else str(key)}


def _row(one: Imported) -> Mapping[str, Any]:
    error = None if one.error is None else error_to_dict(one.error)
    return {
        "name": one.name,
        "address": one.address,
        "result": one.result,
        "operation": one.operation,
        "error": error,
    }


def _tell(imported: Sequence[Imported], output: Format) -> None:
    """:raises Fatal: ``inventory.incomplete``, after the table that says why"""
    rows = [_row(result) for result in imported]
    show_list(rows, IMPORTED, output, "no hosts")
    failed = sum(result.error is not None for result in imported)
    if failed:
        raise Fatal(
            "inventory.incomplete",
            f"{failed} of {len(imported)} hosts were not enrolled",
            hint="mend them and run the same import again: enrolled hosts are left alone",
        )
