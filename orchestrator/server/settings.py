# SPDX-License-Identifier: Apache-2.0
"""Settings: ``VGPUCTL_…`` variables over ``config.yaml`` of the state directory over these defaults."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from orchestrator.client.location import state_directory
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.host import MAX_OVERCOMMIT
from orchestrator.core.names import closest
from orchestrator.core.ovn import parse_endpoints, parse_mappings
from orchestrator.core.plain_words import in_plain_words
from orchestrator.core.vms.network import DEFAULT_RANGE, check_range
from orchestrator.services.events import DEFAULT_KEPT


def _endpoints(text: str) -> str:
    """The same, when it can be asked. :raises ValueError: why not"""
    return ",".join(parse_endpoints(text))


def _mappings(text: str) -> str:
    """The same, when hosts can be told it. :raises ValueError: why not"""
    return ",".join(f"{network}:{bridge}" for network, bridge in parse_mappings(text).items())


class Settings(BaseSettings):
    """An unknown key in the file is an error: a misspelt setting must not be a silent default."""

    model_config = SettingsConfigDict(env_prefix="VGPUCTL_", extra="forbid", frozen=True, env_ignore_empty=True)

    state: Path = Field(default_factory=state_directory)
    """Everything that is kept: database, keys, images, logs."""
    database_url: str | None = None
    """As SQLAlchemy writes it; None: SQLite in the state directory."""
    workers: int = Field(default=64, ge=1, le=256)
    """Operations at work at the same time; four times as many with those that wait for their hosts."""
    operations_per_host: int = Field(default=4, ge=1, le=64)
    """Of them on one host, as many that copy disks there, or in guests of a tenant; the others wait. Of all
    controllers: twice as many at most."""
    operations_kept_days: float = Field(default=90.0, ge=1.0, le=3650.0)
    """How long after its end an operation can still be shown."""
    events_kept: int = Field(default=DEFAULT_KEPT, ge=1000, le=10_000_000)
    """How many events of the fleet are kept for those who come back; of the last hour ten times as many."""
    events_kept_days: float = Field(default=7.0, ge=0.01, le=365.0)
    """How long."""
    hand_back_days: float = Field(default=14.0, ge=0.0, le=366.0)
    """How long after the planned beginning of a maintenance a VM may stay where it is, when its user chooses."""
    evacuate_after_seconds: float = Field(default=0.0, ge=0.0, le=86400.0)
    """How long a host has not answered before it is fenced by its agent and evacuated by itself; 0: never."""
    evacuate_at_most: int = Field(default=1, ge=1, le=64)
    """How many hosts may be away for that: who went within twice that time, and who was evacuated within a day."""
    gpus_reset_a_day: int = Field(default=0, ge=0, le=1000)
    """How many GPUs that are unfit are emptied and reset by themselves within a day at most; 0: none. Where
    such a reset fails its host is rebooted, once."""
    gpu_trial_seconds: int = Field(default=30, ge=30, le=3600)
    """How long after its reset, and the vGPU that was made on it, a GPU must stay well before VMs get it again."""
    refresh_seconds: float = Field(default=30.0, ge=1.0, le=3600.0)
    """How often every host is looked at."""
    hosts_at_once: int = Field(default=16, ge=1, le=256)
    """How many hosts are looked at side by side."""
    hosts_watched: int = Field(default=1024, ge=0, le=4096)
    """How many hosts are listened to for events and readings, a thread each; the others are looked at in rounds only.
    Several controllers listen to different hosts first."""
    hosts_connected: int = Field(default=2000, ge=1, le=100_000)
    """How many hosts this server keeps connected; a host that falls silent is noticed on its connection within
    seconds, any other by the next round."""
    auto_repair: Literal["none", "safe", "all"] = "safe"
    """What is repaired without being asked: nothing, what can harm nobody, or also VMs that run or stand still and
    should not."""
    auto_repairs_per_hour: int = Field(default=20, ge=1, le=10_000)
    """How many repairs this server begins by itself in an hour, on all hosts together."""
    vcpu_overcommit: float = Field(default=4.0, ge=1.0, le=MAX_OVERCOMMIT)
    """vCPUs that VMs may have together for each of a host's; ``host set`` overrides it."""
    memory_overcommit: float = Field(default=1.0, ge=1.0, le=MAX_OVERCOMMIT)
    """The same for memory; ``host set`` overrides it."""
    disk_overcommit: float = Field(default=1.0, ge=1.0, le=20.0)
    """Disk that VMs may have together, against what there is of it."""
    memory_reserve_mib: int = Field(default=512, ge=0)
    """Memory of every host that is not given to VMs."""
    tenant_subnets: Annotated[IPv4Network, AfterValidator(check_range)] = DEFAULT_RANGE
    """Private IPv4 range of 8 to 24 bits that networks of tenants are in: none that a host has a route or an address
    in."""
    ovn_northbound: Annotated[str, AfterValidator(_endpoints)] | None = None
    """Servers of OVN's northbound database, as OVN writes them: ``ssl:192.0.2.41:6641``, several with commas; None:
    networks are NAT of each host alone."""
    ovn_southbound: Annotated[str, AfterValidator(_endpoints)] | None = None
    """The same of its southbound database: ``ssl:192.0.2.41:6642``."""
    ovn_encapsulation_network: IPv4Network | None = None
    """Where hosts have to have the address that others send their VMs' frames to; None: anywhere."""
    ovn_bridge_mappings: Annotated[str, AfterValidator(_mappings)] | None = None
    """Bridges of Open vSwitch that lead outside on hosts with label ``ovn=outside`` or ``ovn=gateway``, as OVN writes
    them: ``physnet1:br-ex``; None: what a host has stays."""
    ovn_ca_file: Path | None = None
    """PEM file of whom to trust as an OVN of your own; None: it has certificates of this server's making."""
    ovn_certificate_file: Path | None = None
    """PEM file with key and certificate that are shown there, without a password."""
    guest_seen_seconds: float = Field(default=120.0, ge=0.0, le=3600.0)
    """How long a started guest may take to get an address before create ends with a warning."""
    shutdown_grace_seconds: int = Field(default=30, ge=0, le=3600)
    """How long a guest may take to shut down before it is powered off."""

    listen: str | None = None
    """``HOST:PORT`` of the network to answer on, beside the unix socket; only over TLS."""
    socket_directory: Path | None = None
    """Where members of a group find a socket of their own, ``serve.sock``; None: only the owner and root have one."""
    socket_group: str | None = None
    """Name or number of that group. Who somebody is there, and may do, their uid and the members decide."""
    tls_cert: Path | None = None
    """PEM file: the server's certificate and those between it and the root."""
    tls_key: Path | None = None
    """PEM file: its key, without a password."""
    advertise: str | None = Field(default=None, pattern=r"^(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]{1,255}):[0-9]{1,5}$")
    """``HOST:PORT`` where other controllers of the database reach this one; None: what ``listen`` says, and this
    machine's name where that is every address."""
    images_directory: Path | None = None
    """Where base images are kept: one that all controllers share needs nothing to be fetched. None: in the state
    directory."""

    file_directories: tuple[Path, ...] = ()
    """Where files lie that the server reads when somebody names one by its path: images, driver bundles. Empty: none;
    what a command names is read by the command and sent."""
    image_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks of addresses that are not public (loopback, link-local, private) that images may be downloaded from, as
    those of a mirror; without this none."""

    webhook_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks of addresses that are not public that events may be sent to; without this none."""
    webhook_ca_file: Path | None = None
    """PEM file of whom to trust there; None: whom this machine trusts."""

    otlp_endpoint: str | None = Field(default=None, pattern=r"^https?://[!-~]{1,1000}$")
    """Address of a collector that metrics, events and networks' flows are pushed to over OTLP/HTTP, without
    ``/v1/metrics`` and ``/v1/logs``; None: nothing is."""
    otlp_headers_file: Path | None = None
    """File of headers that are sent along, as ``Authorization: Bearer …``: one a line."""
    otlp_ca_file: Path | None = None
    """PEM file of whom to trust there; None: whom this machine trusts."""
    otlp_seconds: float = Field(default=60.0, ge=5.0, le=3600.0)
    """How often. Some 10 ms of processor time for a host of 8 GPUs without vGPUs each time."""

    flow_log_file: Path | None = None
    """File that this server adds flows of networks with a flow log to, a line of JSON each; it may be renamed at any
    time, and is renamed to the same name with ``.1`` at 256 MiB. None: they are kept in memory alone."""

    ansible_sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    """What keeps a run of Ansible from all that is not its own; ``none`` (where bubblewrap cannot run, as in many
    containers): nothing does, and the guest or host that takes a run over has the server."""

    oidc_issuer: str | None = None
    """Address of the identity provider, as its tokens name it; None: nobody logs in."""
    oidc_client_id: str | None = None
    """What this pool is called there: tokens made for others are refused."""
    oidc_client_secret_file: Path | None = None
    """File with what proves to the provider that browsers' logins are ours, where it wants a proof; None: the client is
    a public one."""
    oidc_groups_claim: str = "groups"
    """Where its tokens list the groups somebody belongs to."""
    oidc_required_acr: str | tuple[str, ...] = ()
    """Levels (``acr``) of which a login of an admin, operator or tenant-admin has one; empty: any."""
    oidc_required_amr: str | tuple[str, ...] = ()
    """Methods (``amr``, like ``mfa``) of which it has at least one; empty: any."""
    oidc_ca_file: Path | None = None
    """PEM file of whom to trust as the provider; None: whom this machine trusts."""

    admin_token_max_days: float | None = Field(default=None, gt=0.0, le=3650.0)
    """Longest life of a token of an admin, operator or tenant-admin; None: as of any token, without an end too."""

    @property
    def database_server(self) -> str | None:
        """Address of a database that several controllers may share; None: SQLite, which has one."""
        url = self.database_url
        return None if url is None or url.startswith("sqlite") else url

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, environment, file. No .env files: what a directory holds must not change what we do."""
        file = YamlConfigSettingsSource(settings_cls, yaml_file=state_directory() / "config.yaml")
        return init_settings, env_settings, file


def load_settings(**overrides: Any) -> Settings:
    """:raises InvalidInput: ``settings.invalid``, with the field's name"""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        near = closest(field, Settings.model_fields)[:1] if first["type"] == "extra_forbidden" else []
        raise InvalidInput(
            "settings.invalid",
            f"setting {ascii(field)[1:-1][:60]}: {in_plain_words(first['type'], first['msg'], first.get('ctx', {}))}",
            hint=f"did you mean {near[0]}?"
            if near
            else "see config.yaml in the state directory and the VGPUCTL_ variables",
        ) from error
    except (SettingsError, yaml.YAMLError, OSError, ValueError) as error:
        raise InvalidInput(
            "settings.invalid",
            "config.yaml in the state directory cannot be read",
            details=str(error),
            hint="correct it or take it away",
        ) from error
