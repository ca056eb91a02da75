# SPDX-License-Identifier: Apache-2.0
"""What servers have in common: loaded, and made, in the process that those of the tests are forked from."""

from __future__ import annotations

from orchestrator.adapters.engine import work_queue
from orchestrator.api.app import all_routes
from orchestrator.api.route_table import RouteTable
from orchestrator.server import serve
from orchestrator.sim import hosts_process
from tests.fakes import serve as fake
from tests.fakes.new_database import migrated
from tests.fakes.tenancy import KEY

__all__ = ["fake", "hosts_process", "serve", "work_queue"]

migrated(KEY)
RouteTable(all_routes())
