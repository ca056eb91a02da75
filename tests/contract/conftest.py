# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from tests.contract.agent_over_ssh import SITE, Chain, chain
from tests.fakes.ovn_databases import RealOvn, real_ovn


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Chain]:
    with chain(tmp_path) as found:
        yield found


@pytest.fixture
def link(way: Chain) -> Iterator[SshHostLink]:
    made = SshHostLink(site=SITE, key_file=way.key_file)
    yield made
    made.close()


@pytest.fixture(scope="module")
def ovn_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOvn]:
    with real_ovn(tmp_path_factory.mktemp("ovn")) as made:
        yield made


@pytest.fixture
def ovn(ovn_of_module: RealOvn) -> RealOvn:
    """Its northbound is empty."""
    for table in ("logical_switch", "logical_router", "dhcp_options", "dns", "port_group", "meter"):
        ovn_of_module.nbctl("--all", "destroy", table)
    return ovn_of_module
