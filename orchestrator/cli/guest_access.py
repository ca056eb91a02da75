# SPDX-License-Identifier: Apache-2.0
"""What ``vgpuctl ssh`` remembers of a VM on this machine: its host keys and which key opens it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.client.program import own_program
from orchestrator.core.errors import Unknown

_DIRECTORY: Final = "ssh"


def _directory(state: Path, vm_id: str) -> Path:
    """``vm_id`` comes from a server. The client has looked at it (client/connection.py); what is made and deleted by
    that name looks again.

    :raises Unknown: ``server.malformed``
    """
    if Path(vm_id).name != vm_id:
        raise Unknown("server.malformed", f"the server's answer has an id that is none: {ascii(vm_id)[:80]}")
    return state / _DIRECTORY / vm_id


def remember_identity(state: Path, vm_id: str, public_key: Path) -> None:
    """Note the private key beside ``public_key``, if it is there, for later ``ssh``."""
    private = public_key.with_suffix("")
    if public_key.suffix != ".pub" or not private.is_file():
        return
    directory = _directory(state, vm_id)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = directory / "identity"
    link.unlink(missing_ok=True)
    link.symlink_to(private.absolute())


def forget(state: Path, vm_id: str) -> None:
    """The VM is gone: its host keys mean nothing any more."""
    shutil.rmtree(_directory(state, vm_id), ignore_errors=True)


def ssh_arguments(state: Path, vm_id: str, name: str, tenant: str, user: str) -> list[str]:
    """ssh's own arguments up to the remote command; the connection goes through the server and the VM's host."""
    options = ssh_options(state, vm_id, name, tenant)
    return ["ssh", *options, "-o", "LogLevel=ERROR", "-l", user, "--", guest_name(name, tenant)]


def guest_name(name: str, tenant: str) -> str:
    """What ssh and Ansible call a VM. It is never looked up: the proxy knows the way."""
    return f"{name}.{tenant}"


def ssh_options(
    state: Path, vm_id: str, name: str, tenant: str, variables: Mapping[str, str] | None = None
) -> list[str]:
    """How ssh comes to a VM, which host keys it knows and which key it shows.

    ``variables``: what the proxy's environment must have, where ssh is not started with it.
    """
    directory = _directory(state, vm_id)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = ["env", *(f"{key}={value}" for key, value in variables.items())] if variables else []
    proxy = shlex.join([*settings, *own_program("orchestrator.cli.main", "vm", "proxy", name, "--tenant", tenant)])
    options = [
        f"ProxyCommand={_literal(proxy)}",
        f'UserKnownHostsFile="{_literal(str(directory / "known_hosts"))}"',
        "StrictHostKeyChecking=accept-new",
    ]
    identity = directory / "identity"
    words = [word for option in options for word in ("-o", option)]
    return [*words, "-o", "IdentitiesOnly=yes", "-i", str(identity)] if identity.is_file() else words


def _literal(text: str) -> str:
    """ssh expands ``%`` tokens in these values (ssh_config(5))."""
    return text.replace("%", "%%")


def become(arguments: list[str], chosen: Mapping[str, str]) -> None:
    """Replace this process by ssh, so that its exit code and terminal are its own.

    ``chosen``: variables by which the proxy that ssh starts finds the same server.

    :raises OSError: there is no ssh on this machine
    """
    os.execvpe(arguments[0], arguments, {**os.environ, **chosen})
