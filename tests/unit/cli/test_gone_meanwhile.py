# SPDX-License-Identifier: Apache-2.0
"""Somebody else is quicker between two questions of one command, which are told what is so then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client.client import Client
from orchestrator.core.errors import VgpuctlError
from tests.fakes.typed import Cli


def meanwhile(patch: pytest.MonkeyPatch, name: str, *, before: Callable[..., object], after: bool = False) -> None:
    """``before``: what somebody does when the command asks ``name``; with ``after`` when it has been answered."""
    real = getattr(Client, name)

    def asked(client: Client, *words: Any, **more: Any) -> Any:
        if after:
            answer = real(client, *words, **more)
            before(client, answer)
            return answer
        before(client, *words)
        return real(client, *words, **more)

    patch.setattr(Client, name, asked)


def test_a_vm_that_a_file_no_longer_has_is_gone_whoever_deleted_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, text = tmp_path / "wanted.yaml", "schema_version: 1\nlabel: quick\nvms: [{}]\n"
    file.write_text(text.format("{name: hare, profile: t4-small, image: guest}"))
    assert cli("apply", "-f", str(file)).code == 0
    delete = Client.delete_vm
    meanwhile(monkeypatch, "delete_vm", before=lambda client, *vm: client.wait(delete(client, *vm)))
    file.write_text(text.format(""))
    done = cli("apply", "--prune", "-f", str(file), "--yes")
    assert (done.code, done.out) == (0, "1 of 1 changes made\n"), done.err
    assert "✓ vm default/hare: deleted" in done.err


@pytest.mark.parametrize("key", [True, False])
def test_a_vm_that_is_taken_back_at_once_is_told_by_the_reason(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bool
) -> None:
    def end(client: Client, started: Any) -> None:
        with suppress(VgpuctlError):
            client.wait(started)
        client.wait(client.delete_vm("fails", "default"))

    for suffix, said in (("", "private"), (".pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me\n")):
        (tmp_path / f"id{suffix}").write_text(said)
    meanwhile(monkeypatch, "create_vm", before=end, after=True)
    words = ("--ssh-key", str(tmp_path / "id.pub")) if key else ()
    done = cli("create-vm", "fails", "--profile", "t4-small", "--image", "guest", *words)
    assert (done.code, "[gpu.create_failed]" in done.err) == (9, True), done.err


def test_a_tenant_that_goes_while_all_is_exported_is_left_out(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("tenant", "create", "brief").code == 0

    def leave(client: Client, tenant: str) -> None:
        if tenant == "brief":
            client.delete_tenant(tenant)

    meanwhile(monkeypatch, "quota", before=leave)
    done = cli("export")
    assert (done.code, "brief" in done.out) == (0, False), done.err
