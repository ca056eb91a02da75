# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl driver …``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.commands.driver_upgrade import upgrade
from orchestrator.cli.complete import hosts
from orchestrator.cli.files import read_text
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import ServerPath, Sha256, Sort
from orchestrator.cli.session import CliSession, Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, Listing, field, show_list, show_rows
from orchestrator.cli.tree import new_group
from orchestrator.cli.uploading import sending
from orchestrator.client.connection import Json
from orchestrator.core.drivers.check import Verdict
from orchestrator.core.drivers.lock import SITE
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.units import MIB, show_size

app = new_group("Drivers: their files, what is locked, what is there.")
bundle_app = new_group("The operator's own driver files. Digest and signature are checked.")
app.add_typer(bundle_app, name="bundle")
lock_app = new_group("The versions that the site means to have: drivers.lock.yaml.")
app.add_typer(lock_app, name="lock")
app.command("upgrade")(upgrade)

MAX_SIGNATURE_BYTES: Final = 6144
MAX_LOCK_BYTES: Final = 1024 * 1024
DIFFERENT: Final = 3
"""Exit code of ``check`` when something is not as it is locked, or forbidden."""
SHORT: Final = 12
"""Digits of a digest that tables show; as many are enough to name a bundle."""

COLUMNS: Final = (
    Column("DIGEST", lambda bundle: shown(bundle["sha256"])[:SHORT], Fit.WHOLE),
    field("KIND", "kind", Fit.WHOLE),
    field("VERSION", "version", Fit.WHOLE),
    field("BRANCH", "branch"),
    field("FORMAT", "format"),
    field("ARCH", "architecture"),
    field("KEY", "key_id", spare=True),
)

LOCKED: Final = (
    field("GROUP", "group", Fit.WHOLE),
    field("HOSTS", "labels"),
    field("COMPONENT", "component", Fit.WHOLE),
    field("VERSION", "version", Fit.WHOLE),
    Column("DIGEST", lambda one: shown(one["sha256"])[:SHORT], spare=True),
)
CHECKED: Final = (
    field("WHAT", "subject", Fit.WRAP),
    field("PART", "part", Fit.WHOLE),
    field("VERDICT", "verdict", Fit.WHOLE),
    field("LOCKED", "wanted"),
    field("THERE", "observed", Fit.WRAP),
    field("WHY", "reason", Fit.WRAP),
)

Which = Annotated[str, typer.Argument(help="Its digest, the first digits of it, or its version.")]


@bundle_app.command("add")
def add(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help=".run, .deb or .rpm, which is sent.")],
    key: Annotated[Path, typer.Option("--key", help="The signer's public key of OpenPGP, armored.")],
    signature: Annotated[
        Path | None,
        typer.Option("--signature", help="FILE.asc; without it the one inside of a deb or rpm counts."),
    ] = None,
    sha256: Sha256 = None,
    server_path: ServerPath = False,
) -> None:
    """Take a signed driver; nothing of it is executed."""
    session = session_of(ctx)
    signed = None if signature is None else read_text(signature, what="signature", max_bytes=MAX_SIGNATURE_BYTES)
    signer = read_text(key, what="key", max_bytes=MAX_SIGNATURE_BYTES)
    if server_path:
        wanted = {"source": str(file), "signature": signed, "key": signer, "sha256": sha256}
        bundle = session.client.add_driver_bundle(wanted)
    else:
        with sending(session, file, sha256) as content:
            bundle = session.client.upload_driver_bundle(content, signed, signer)
    show(bundle, session.format, lambda: details(bundle))


@bundle_app.command("list")
def list_bundles(ctx: typer.Context, sort: Sort = None) -> None:
    """List drivers by kind and version."""
    none = "no drivers yet: vgpuctl driver bundle add FILE --signature FILE.asc --key KEY.asc"
    show_list(session_of(ctx).client.driver_bundles(), COLUMNS, format_of(ctx), none, sort)


@bundle_app.command("show")
def show_bundle(ctx: typer.Context, which: Which) -> None:
    """Show one driver."""
    bundle = _found(session_of(ctx), which)
    show(bundle, format_of(ctx), lambda: details(bundle))


@bundle_app.command("remove")
def remove(ctx: typer.Context, which: Which) -> None:
    """Forget a driver and delete its file; no host is touched."""
    session = session_of(ctx)
    bundle = _found(session, which)
    session.client.remove_driver_bundle(bundle["sha256"])
    line = f"{shown(bundle['kind'])} {shown(bundle['version'])} is removed"
    show({"sha256": bundle["sha256"], "removed": True}, session.format, lambda: [line])


def _found(session: CliSession, which: str) -> Json:
    """:raises NotFound: ``bundle.unknown``; :raises InvalidInput: ``bundle.ambiguous``"""
    bundles = session.client.driver_bundles()
    matches = [
        bundle for bundle in bundles if which and (bundle["sha256"].startswith(which) or bundle["version"] == which)
    ]
    if not matches:
        raise NotFound(
            "bundle.unknown", f"no driver is {ascii(which)[:70]}", hint="'vgpuctl driver bundle list' shows them"
        )
    if len(matches) > 1:
        digests = ", ".join(shown(bundle["sha256"])[:SHORT] for bundle in matches)
        raise InvalidInput(
            "bundle.ambiguous",
            f"{len(matches)} drivers are {ascii(which)[:70]}: {digests}",
            hint="give one of these digests",
        )
    return matches[0]


def details(bundle: Mapping[str, Any]) -> list[str]:
    size = bundle["size_bytes"] // MIB * MIB
    pairs = [
        ("kind", shown(bundle["kind"])),
        ("version", shown(bundle["version"])),
        ("branch", shown(bundle["branch"])),
        ("package", shown(bundle["package"])),
        ("format", f"{shown(bundle['format'])} for {shown(bundle['architecture'])}"),
        ("size", show_size(size) if size else f"{bundle['size_bytes']} bytes"),
        ("SHA-256", shown(bundle["sha256"])),
        ("signed by", f"{shown(bundle['key_id'])}: {shown(bundle['comment'])}"),
        ("added", show_time(bundle["created_at"])),
    ]
    return render_details(pairs)


@lock_app.command("show")
def show_lock(ctx: typer.Context) -> None:
    """Show which versions are locked."""
    _show_lock(session_of(ctx).client.driver_lock(), format_of(ctx))


@lock_app.command("apply")
def apply_lock(ctx: typer.Context, file: Annotated[Path, typer.Argument(help="drivers.lock.yaml")]) -> None:
    """Lock the versions of a file; what does not go together is refused. No host is touched."""
    from orchestrator.catalogue.driver_lock_file import read_lock

    form = read_lock(file, read_text(file, what="file", max_bytes=MAX_LOCK_BYTES))
    _show_lock(session_of(ctx).client.put_driver_lock(form.model_dump(exclude_none=True)), format_of(ctx))


def _show_lock(lock: Json, output: Format) -> None:
    groups = [(SITE, "all others" if lock["groups"] else "all", lock["site"])]
    groups += [(group["name"], group["labels"], group["locked"]) for group in lock["groups"]]
    as_site = {"component": None, "version": None, "sha256": None}
    rows = [
        {"group": name, "labels": labels, **group}
        for name, labels, locked in groups
        for group in locked or ([] if name == SITE else [as_site])
    ]
    none = "no versions are locked: vgpuctl driver lock apply drivers.lock.yaml"
    show_rows(lock, rows, Listing(columns=LOCKED, none=none, output=output))


@app.command("check")
def check(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also what is as it should be.")] = False,
    host_driver: Annotated[
        str | None, typer.Option("--if-hosts-had", metavar="VERSION", help="Judge VMs as if all hosts had this driver.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="NAME", help="Only hosts of this name or pattern, like gpu-*.", autocompletion=hosts
        ),
    ] = None,
    verdict: Annotated[Verdict | None, typer.Option("--verdict", help="Only what compares so.")] = None,
    sort: Sort = None,
) -> None:
    """Show hosts and VMs whose drivers are not as locked, or forbidden. Exit code 3 when there are."""
    rows = session_of(ctx).client.driver_check(host_driver, host, verdict)["rows"]
    bad = [row for row in rows if row["verdict"] in {"drift", "forbidden"}]
    chosen = rows if everything or verdict is not None else bad
    unknown = sum(row["verdict"] == "unknown" for row in rows)
    summary = f"{len(rows)} compared, {len(bad)} not as they should be, {unknown} that nobody can judge"
    none = "nothing compares so" if verdict else "nothing is as it should not be" if rows else "there are no hosts yet"
    show_rows(rows, chosen, Listing(columns=CHECKED, none=none, output=format_of(ctx), sort=sort, said=[summary]))
    raise typer.Exit(DIFFERENT if bad else 0)
