# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.paths import Paths
from orchestrator.agent.timing import RealTiming
from orchestrator.core.attachments import ATTACHMENTS
from orchestrator.core.gpu.device import DeviceKind
from tests.fakes.fake_mig import FakeMig
from tools.tree import files, text

KIND = re.compile(r"mdev|vendor_vfio", re.IGNORECASE)

HOMES: dict[str, str] = {
    "orchestrator/core/attachments/": "one file per kind",
    "orchestrator/agent/attachments/": "one file per kind",
    "orchestrator/agent/ledger.py": "names of actions that older agents wrote down",
    "orchestrator/core/gpu/device.py": "the list of kinds, and what an agent reports of functions, as stored and sent",
    "orchestrator/core/actions/host_actions.py": "the list of everything that is done to a host",
    "orchestrator/core/hosts/snapshot_rules.py": "what may stand there, and how large it may be",
    "orchestrator/agent/nvml/vgpu_readings.py": "the name of one of NVML's functions",
    "orchestrator/agent/sysfs/": "files of the kernel",
    "orchestrator/api/schemas/vm_parts.py": "a field of the API keeps its name",
    "orchestrator/sim/kernel.py": "a kernel in memory",
    "orchestrator/sim/vgpu_actions.py": "what an agent does to it, and reports of it",
}


def test_nothing_but_its_own_files_knows_an_attachment_kind() -> None:
    strangers = [
        str(path)
        for path in files(".py", under="orchestrator/")
        if KIND.search(text(path)) and not path.as_posix().startswith(tuple(HOMES))
    ]
    assert strangers == []


def test_nobody_else_compares_the_kind_of_a_device() -> None:
    """A device says itself what follows from its kind."""
    compared = re.compile(r"\bdevice\.kind (?:==|!=|in|not in) ")
    assert [
        str(path)
        for path in files(".py", under="orchestrator/")
        if compared.search(text(path)) and not path.as_posix().startswith(tuple(HOMES))
    ] == []


def test_controller_and_agent_know_the_same_kinds(tmp_path: Path) -> None:
    paths = Paths(root=tmp_path, storage=tmp_path)
    ledger = Ledger(tmp_path, site="s", epoch=1, boot_id="b")
    kinds = kinds_of(DeviceFiles(paths, ledger, RealTiming(), dict), FakeMig(), Nvml())
    ledger.close()
    assert set(kinds) == set(ATTACHMENTS) == set(get_args(DeviceKind))


@pytest.mark.parametrize("home", HOMES)
def test_no_home_of_an_attachment_kind_is_named_in_vain(home: str) -> None:
    assert any(KIND.search(text(path)) for path in files(".py", under="orchestrator/") if str(path).startswith(home))
