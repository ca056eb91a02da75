# SPDX-License-Identifier: Apache-2.0
"""What stands between the control plane and its hosts: agents over SSH, put there by Ansible."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.adapters.agent_link.ssh import scan_host_key
from orchestrator.adapters.ansible.configurator import AnsibleConfigurator
from orchestrator.adapters.ansible.guests import AnsibleGuests
from orchestrator.adapters.ansible.ssh_proxy import tcp_stream
from orchestrator.adapters.controllers.images import FetchedImages
from orchestrator.adapters.controllers.peer_auth import credential
from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.adapters.images.sources import Downloads, Sources
from orchestrator.adapters.state.clock import SystemClock
from orchestrator.adapters.state.directory import controller_name
from orchestrator.adapters.state.guest_keys import GuestKeys
from orchestrator.adapters.state.keys import HostKeyFiles, agent_key, database_key
from orchestrator.adapters.state.ovn_authority import OvnAuthority
from orchestrator.agent.build_zipapp import build_agent, own_agent
from orchestrator.core.errors import Bug
from orchestrator.ports.files import HostKeys, ImageFiles
from orchestrator.ports.host import Configurator, Guests, HostLink, Inspector
from orchestrator.server.settings import Settings
from orchestrator.services.guests.guests import GuestPorts
from orchestrator.services.messages import HostKey
from orchestrator.store.database import Store

log = logging.getLogger(__name__)
_PACKAGE = Path(__file__).resolve().parents[1]


def _nothing() -> None:
    pass


def _untold(_tell: Callable[[str], None]) -> None:
    """Hosts without a standing connection."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What stands between the control plane and its hosts."""

    link: HostLink
    configurator: Configurator
    guests: Guests
    scan_key: Callable[[str, int], HostKey]
    """Reads the SSH host key at an address and port."""
    keys: HostKeys
    images: ImageFiles
    inspector: Inspector | None = None
    when_lost: Callable[[Callable[[str], None]], None] = _untold
    """What it is given is told the name of each host whose standing connection was lost."""
    own_agent: Callable[[], str | None] = _nothing
    """The version of the agent that belongs to this server; None: the hosts are simulated."""
    leave: Callable[[], None] = _nothing
    """End at once what takes minutes."""
    close: Callable[[], None] = _nothing
    rounds: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """What is done again and again for them, by name."""


def over_ssh(settings: Settings, store: Store) -> Reach:
    """Agents over SSH, put on their hosts by Ansible."""
    secrets = settings.state / "secrets"
    keys = HostKeyFiles(secrets / "hosts", store)
    public = agent_key(secrets / "agent_key", store)
    name, key_file = controller_name(settings.state), secrets / "agent_key"
    link = SshHostLink(site=store.site, controller=name, key_file=key_file, most=settings.hosts_connected)
    images = images_of(settings, store)
    confined = settings.ansible_sandbox != "none"
    if not confined:
        log.warning("ansible_sandbox is none: a guest or host that takes a run of Ansible over has this server")
    clock, key = SystemClock(), database_key(secrets / "database_key")
    authority = OvnAuthority(key, clock)
    configurator = AnsibleConfigurator(
        site=store.site,
        state=settings.state,
        playbooks=_playbooks(),
        provisioning_key=lambda host: keys.path(host.name),
        authorized_keys=(public,),
        build_agent=lambda path: build_agent(path).sha256,
        sign=partial(authority.sign, "host"),
        confined=confined,
    )
    guests = AnsibleGuests(
        state=settings.state,
        playbooks=_playbooks(),
        credential=GuestKeys(key, clock).credential,
        open_tcp=GuestPorts(store=store, link=link, connect=tcp_stream).open_tcp,
        clock=clock,
        confined=confined,
    )

    def leave() -> None:
        configurator.leave()
        guests.leave()

    return Reach(
        link=link,
        configurator=configurator,
        guests=guests,
        scan_key=_scan,
        keys=keys,
        images=images,
        rounds={"images": images.round},
        inspector=configurator,
        when_lost=link.when_lost,
        own_agent=own_agent,
        leave=leave,
        close=link.close,
    )


def images_of(settings: Settings, store: Store, kind: type[FetchedImages] = FetchedImages) -> FetchedImages:
    """Those of this controller, and of the others that it reaches."""
    name = controller_name(settings.state)
    shared = settings.images_directory
    sources = Sources(files=readable_files(settings), downloads=Downloads(settings.image_networks))
    library = ImageLibrary(shared or settings.state / "images", sources, "" if shared is None else f"{name}.")
    return kind(library, store, name, credential(settings.state / "secrets" / "controller_credential"))


def _scan(address: str, port: int) -> HostKey:
    scanned = scan_host_key(address, port)
    return HostKey(type=scanned.type, key=scanned.key, fingerprint=scanned.fingerprint)


def _playbooks() -> Path:
    """Inside an installed package, else beside it in a source tree."""
    for candidate in (_PACKAGE / "_data" / "playbooks", _PACKAGE.parent / "playbooks"):
        if candidate.is_dir():
            return candidate
    raise Bug("playbooks.missing", "this installation has no playbooks", hint="install vgpuctl again")


def readable_files(settings: Settings) -> Readable:
    """The files that the server reads because somebody names them."""
    return Readable(below=settings.file_directories, never_below=settings.state)
