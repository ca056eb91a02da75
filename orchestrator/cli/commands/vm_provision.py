# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm provision``"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.files import read_text
from orchestrator.cli.guest_results import guest_lines
from orchestrator.cli.output import show
from orchestrator.cli.parameters import Name, Tenant, Wait
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, session_of
from orchestrator.cli.vm_outcome import started_lines
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.guest.settings import (
    MAX_SECRET_BYTES,
    ROLES,
    SECRETS,
    SETTINGS,
    SettingValue,
    check_roles,
    check_secrets,
    check_settings,
)

Var = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=VALUE", help=f"Said to the roles; may be repeated: {', '.join(SETTINGS)}."),
]
SecretFile = Annotated[
    list[str] | None,
    typer.Option("--secret-file", metavar="NAME=FILE", help=f"A file that a role needs: {', '.join(SECRETS)}."),
]
_LICENCE: Final = "licence_token"
LicenceToken = Annotated[
    Path | None, typer.Option("--licence-token", metavar="FILE", help="NVIDIA's client configuration token.")
]


def _roles(names: list[str]) -> list[str]:
    return list(check_roles(names))


@dataclass(frozen=True, kw_only=True)
class Said:
    """What create-vm was told of roles for the new guest."""

    roles: tuple[str, ...]
    none_offered: bool
    settings: dict[str, SettingValue]
    secrets: dict[str, str]

    @classmethod
    def of(
        cls, roles: list[str] | None, none_offered: bool, var: list[str] | None, secret_file: list[str] | None,
        token: Path | None,
    ) -> Said:  # fmt: skip
        """Which role a setting belongs to is the server's to say: the offering may ask for more.

        :raises InvalidInput: ``guest.role_unknown``, ``secret_file.…``, ``cli.usage``
        """
        return cls(
            roles=check_roles(roles) if roles else (),
            none_offered=none_offered,
            settings=_settings(var),
            secrets=_secrets(secret_file, token),
        )

    def asked(self) -> dict[str, object]:
        """Of a new VM; what was not said is left out."""
        all_of_it = {
            "provision": list(self.roles),
            "no_provision": self.none_offered,
            "provision_settings": self.settings,
            "provision_secrets": self.secrets,
        }
        return {name: value for name, value in all_of_it.items() if value}

    def begun_on_existing(self, session: CliSession, started: Json, tenant: str) -> Json:
        """A VM that was there already gets the roles that were named, once what goes on there has ended."""
        if not (self.roles and started["existing"]) or started["provisioning"] is not None:
            return started
        if started["operation"] is not None:
            follow(session, started["operation"], joined=True)
        wanted = {"roles": list(self.roles), "settings": self.settings, "secrets": self.secrets}
        begun = session.client.provision_vm(started["name"], tenant, wanted)
        return {**begun, "preempted": started["preempted"]}


def _settings(given: list[str] | None) -> dict[str, SettingValue]:
    return {**_each_once("--var", given)}


def _secrets(given: list[str] | None, token: Path | None) -> dict[str, str]:
    """:raises InvalidInput: ``secret_file.…``, ``cli.usage``"""
    also = [] if token is None else [f"{_LICENCE}={token}"]
    files = _each_once("--secret-file", [*(given or ()), *also])
    if nameless := [name for name, file in files.items() if not file]:
        raise InvalidInput("cli.usage", f"--secret-file {nameless[0][:60]!a} names no file", hint="NAME=FILE")
    options = {} if token is None else {_LICENCE: _LICENCE}
    read = partial(read_text, max_bytes=MAX_SECRET_BYTES)
    return {name: read(Path(file), what=options.get(name, "secret_file")) for name, file in files.items()}


def _each_once(option: str, given: list[str] | None) -> dict[str, str]:
    """:raises InvalidInput: ``cli.usage``"""
    by_name: dict[str, str] = {}
    for word in given or ():
        name, value = _pair(word, option)
        if name in by_name:
            raise InvalidInput(
                "cli.usage", f"{option} {name[:60]!a} is given twice", hint=f"{option} NAME=…, once for each"
            )
        by_name[name] = value
    return by_name


def _pair(word: str, option: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not (name and sign):
        raise InvalidInput("cli.usage", f"{option} {word[:60]!a} is not NAME=…", hint=f"{option} NAME=…, once for each")
    return name, value


def provision(
    ctx: typer.Context,
    name: Name,
    roles: Annotated[
        list[str],
        typer.Argument(
            metavar="ROLE...",
            help=f"Roles: {', '.join(ROLES)}.",
            callback=_roles,
            autocompletion=lambda: list(ROLES),
        ),
    ],
    tenant: Tenant = "default",
    new_host_key: Annotated[
        bool, typer.Option("--new-host-key", help="Its SSH host key was changed on purpose: take the new one.")
    ] = False,
    var: Var = None,
    secret_file: SecretFile = None,
    licence_token: LicenceToken = None,
    wait: Wait = True,
) -> None:
    """Run roles in a VM's guest; a second time changes nothing. What came of it stays with the VM."""
    session = session_of(ctx)
    settings, secrets = (
        check_settings(roles, _settings(var)),
        check_secrets(roles, _secrets(secret_file, licence_token)),
    )
    wanted = {"roles": roles, "new_host_key": new_host_key, "settings": settings, "secrets": secrets}
    started = session.client.provision_vm(name, tenant, wanted)
    if not wait or started["operation"] is None:
        show(started, session.format, lambda: started_lines(started))
        return
    follow(session, started["operation"])
    run = session.client.provisioned(name, tenant)
    show(run, session.format, lambda: guest_lines(run))
