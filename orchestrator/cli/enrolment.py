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
from orchestrator.core.host import MAX_OVERCOMMIT
from orchestrator.core.pci import parse_pci_address

_OWN_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")


def checked_address(text: str) -> str:
    """Never an option for ssh and never a line break; whether it exists, connecting will tell."""
    if not text or text.startswith("-") or any(not (c.isascii() and (c.isalnum() or c in ".-:%_")) for c in text):
        raise InvalidInput(
            "host.address_invalid",
            f"{ascii(text)[:70]} is not an address",
            hint="give an IP address or a DNS name, and the port with --port",
        )
    return text


def checked_user(text: str) -> str:
    """Never an option for ssh."""
    if not text or text.startswith("-") or any(not (c.isascii() and (c.isalnum() or c in "._-")) for c in text):
        raise InvalidInput(
            "host.user_invalid", f"{ascii(text)[:70]} is not a user name", hint="letters, digits, '.', '_' and '-'"
        )
    return text


def checked_gpus(text: str) -> str:
    """``all``, ``unused`` or canonical addresses with commas."""
    if text in {"all", "unused"}:
        return text
    return ",".join(parse_pci_address(address) for address in text.split(","))


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


def confirmed_name(name: str) -> str:
    """What the person at the terminal types to confirm that a host is given up.

    :raises InvalidInput: nobody is there to ask
    """
    if not somebody_types():
        raise InvalidInput("host.not_confirmed", "nobody confirmed that the host is given up", hint=f"--confirm {name}")
    question = f"{name} is given up for good and its VMs are lost. Its name once more"
    return str(typer.prompt(question, err=True))


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
