# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from tests.contract.agent_over_ssh import SITE, Chain, chain


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Chain]:
    with chain(tmp_path) as found:
        yield found


@pytest.fixture
def link(way: Chain) -> Iterator[SshHostLink]:
    made = SshHostLink(site=SITE, key_file=way.key_file)
    yield made
    made.close()
