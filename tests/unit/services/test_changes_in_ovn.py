# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom while networks and groups are changed in OVN."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import cast

import pytest

from orchestrator.core.errors import Retryable
from orchestrator.ports.overlay import Northbound
from orchestrator.services.changes_in_ovn import ChangesInOvn
from tests.fakes.control_plane import plane_with


def test_a_tenant_that_sends_many_changes_at_once_leaves_room_for_others(tmp_path: Path) -> None:
    with plane_with(tmp_path) as plane:  # no tenant has a VM in OVN, so none is asked
        changes = ChangesInOvn(store=plane.store, northbound=cast("Northbound", object()))

        def change() -> None:
            with changes.changing("red"):
                pass

        with ThreadPoolExecutor(20) as threads, changes.changing("red"):
            sent = [threads.submit(change) for _ in range(20)]
            refused, _ = wait(sent, return_when=FIRST_COMPLETED)
            with pytest.raises(Retryable, match="10 changes of tenant red"):
                refused.pop().result()
            with changes.changing("blue"):
                pass
        with changes.changing("red", "blue"):
            pass
