# SPDX-License-Identifier: Apache-2.0
"""One transaction is one ``with store.begin() as tx``; what stands in it is one file per noun beside this one."""

from __future__ import annotations

from sqlalchemy import Connection

from orchestrator.store.audit import Audit
from orchestrator.store.backup_policies import BackupPolicies
from orchestrator.store.backups import Backups
from orchestrator.store.cards import Cards
from orchestrator.store.cleanings import Cleanings
from orchestrator.store.consoles import ConsoleSessions
from orchestrator.store.controllers import Controllers
from orchestrator.store.disk_copies import DiskCopies
from orchestrator.store.disk_snapshots import DiskSnapshots
from orchestrator.store.drivers import DriverBundles, DriverLocks
from orchestrator.store.events import Events
from orchestrator.store.findings import Findings
from orchestrator.store.fleet import Fleet, Observations
from orchestrator.store.floating_addresses import FloatingAddresses
from orchestrator.store.gpu_health import GpuHealths
from orchestrator.store.guests import GuestRecords
from orchestrator.store.hosts import Hosts, ParsedSnapshots
from orchestrator.store.images import Images
from orchestrator.store.maintenances import Maintenances
from orchestrator.store.meta import Meta, Time
from orchestrator.store.networks import Networks
from orchestrator.store.offerings import Offerings
from orchestrator.store.operations import Operations
from orchestrator.store.pages import HostPages, VmPages
from orchestrator.store.places import HeldPlaces
from orchestrator.store.pools import Pools
from orchestrator.store.power import Power
from orchestrator.store.secrets import SecretBox, Secrets
from orchestrator.store.security_groups import SecurityGroups
from orchestrator.store.statements import Statements
from orchestrator.store.suspended import SuspendedVms
from orchestrator.store.tenants import Policies, Quotas, RequestKeys, Tenants, Tokens
from orchestrator.store.usage import TenantUsage, Usage
from orchestrator.store.vgpu_metadata import VgpuMetadata
from orchestrator.store.vms import Claims, Vms
from orchestrator.store.volume_keys import VolumeKeys
from orchestrator.store.volumes import Volumes
from orchestrator.store.web_sessions import EndedWebSessions
from orchestrator.store.webhooks import Webhooks


class Transaction:
    """One connection inside one transaction, and what stands in the database by noun."""

    def __init__(self, connection: Connection, box: SecretBox, parsed: ParsedSnapshots, audited: bytes) -> None:
        self.connection = connection
        db = Statements(connection)
        self.events = Events(db)
        self.usage = Usage(db)
        self.tenant_usage = TenantUsage(db)
        self.hosts = Hosts(db, self.usage, parsed, self.events)
        self.cards, self.vgpu_metadata, self.disk_copies = Cards(db, self.usage), VgpuMetadata(db), DiskCopies(db)
        self.gpu_health, self.power = GpuHealths(db, self.usage, self.events), Power(db)
        self.observations, self.vms = Observations(db, parsed), Vms(db, self.usage, self.tenant_usage, self.events)
        self.vm_pages, self.host_pages = VmPages(db), HostPages(db)
        self.places, self.guests = HeldPlaces(db, self.usage, self.tenant_usage, self.events), GuestRecords(db)
        self.claims, self.cleanings = Claims(db, self.usage), Cleanings(db, self.usage)
        self.fleet = Fleet(db, self.usage, self.claims)
        self.operations, self.controllers = Operations(db, self.events), Controllers(db)
        self.suspended, self.disk_snapshots, self.backups, self.backup_policies = (
            SuspendedVms(db, self.usage, self.vms, self.claims),
            DiskSnapshots(db, self.usage, self.vms),
            Backups(db),
            BackupPolicies(db),
        )
        self.consoles, self.ended_web_sessions = ConsoleSessions(db), EndedWebSessions(db)
        self.images = Images(db, self.tenant_usage, self.events)
        self.networks, self.security_groups = (
            Networks(db, self.tenant_usage, self.events),
            SecurityGroups(db, self.tenant_usage, self.events),
        )
        self.floating_addresses = FloatingAddresses(db, self.networks, self.tenant_usage, self.events)
        self.pools, self.volumes = Pools(db), Volumes(db, self.usage, self.tenant_usage, self.events)
        self.secrets = Secrets(db, box)
        self.offerings = Offerings(db, self.events)
        self.driver_bundles, self.driver_locks = DriverBundles(db), DriverLocks(db)
        self.maintenances, self.volume_keys = Maintenances(db, self.events), VolumeKeys(db, self.secrets)
        self.audit = Audit(db, audited)
        self.findings = Findings(db, self.events)
        self.tenants, self.webhooks, self.request_keys = Tenants(db, self.events), Webhooks(db), RequestKeys(db)
        self.tokens, self.quotas = Tokens(db, self.events), Quotas(db, self.tenant_usage, self.events)
        self.policies = Policies(db, self.events)
        self.time, self.meta = Time(db), Meta(db)
