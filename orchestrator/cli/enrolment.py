# SPDX-License-Identifier: Apache-2.0
"""What ``host add`` checks and asks before anything is sent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import typer

from orchestrator.cli.files import MAX_KEY_BYTES, read_text
from orchestrator.cli.output import shown, somebody_types
from orchestrator.cli.session import CliSession
from orchestrator.core.errors import Denied, InvalidInput
from orchestrator.core.hosts.host import MAX_OVERCOMMIT

_OWN_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")


def overcommit(text: str | None) -> float | str | None:
    """A number, or ``site``. :raises InvalidInput: ``host.overcommit_invalid``"""
    if text is None or text == "site":
        return text
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1.0 <= number <= MAX_OVERCOMMIT:
        raise InvalidInput(
            "host.overcommit_invalid",
            f"{ascii(text)[:40]} is no overcommit",
            hint=f"a number from 1 to {MAX_OVERCOMMIT:g}, or 'site' for what the site's settings say",
        )
    return number


def private_key(path: Path | None) -> str:
    """The text of the key for Ansible; the user's own ssh key when none is named.

    :raises InvalidInput: ``provisioning_key.…``
    """
    if path is None:
        own = [Path.home() / ".ssh" / name for name in _OWN_KEYS]
        path = next((key for key in own if key.is_file()), None)
    if path is None:
        raise InvalidInput(
            "provisioning_key.none", "there is no ssh key of yours here", hint="give --provisioning-key FILE"
        )
    text = read_text(path, what="provisioning_key", max_bytes=MAX_KEY_BYTES)
    if "PRIVATE KEY" not in text:
        raise InvalidInput(
            "provisioning_key.invalid",
            f"{ascii(str(path))[1:-1]} is not a private key",
            hint="give the private key, not the .pub file",
        )
    return text


def confirmed_name(name: str, what: str, hint: str) -> str:
    """What the person at the terminal types to confirm what is done to a host. ``what``: as a sentence without its
    subject; ``hint``: for a terminal without a person.

    :raises InvalidInput: nobody is there to ask
    """
    if not somebody_types():
        raise InvalidInput("host.not_confirmed", f"nobody confirmed that the host {what}", hint=hint)
    return str(typer.prompt(f"{name} {what}. Its name once more", err=True))


def confirmed_fingerprint(session: CliSession, address: str, port: int, *, yes: bool) -> str:
    """The fingerprint of the key that answers now, accepted by ``--yes`` or by the person at the terminal.

    :raises InvalidInput: nobody is there to ask
    :raises Denied: the person said no
    """
    key = session.client.scan_host(address, port)
    shown_key = f"{shown(key['type'])} key of {address}: {shown(key['fingerprint'])}"
    if yes:
        print(shown_key, file=sys.stderr)
    elif not somebody_types():
        raise InvalidInput(
            "host.key_not_confirmed",
            f"nobody confirmed the {shown_key}",
            hint=f"compare it and add --host-key-fingerprint {key['fingerprint']}",
        )
    elif not typer.confirm(f"{shown_key}\nIs that the host's?", err=True):
        raise Denied(
            "host.key_not_confirmed",
            "the host key was not confirmed, nothing was done",
            hint="compare it with what the host's console says",
        )
    return str(key["fingerprint"])
