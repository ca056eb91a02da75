# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.cli import ages
from tests.fakes.running import running_server
from tests.fakes.world import EPOCH
from tests.unit.cli.golden_screens import check, check_view, file_name, told_by

VIEWS = (
    "list-vms",
    "host list",
    "host show gpu1",
    "gpu list",
    "gpu show gpu1 41:00.0",
    "gpu map",
    "profile list",
    "profile show t4-small",
    "image list",
    "network list",
    "operation list",
    "list-vms -o wide",
    "host list -o csv",
    "gpu list -o name",
    "events train",
    "show-vm train",
    "status",
    "doctor",
    "capacity",
    "explain --profile t4-small",
    "explain --profile t4-small --host other",
)
STORY = (
    "create-vm train --profile t4-small",
    "create-vm train --profile t4-small --vcpus 3",
    "create-vm fails --profile t4-small",
    "create-vm stuck --profile t4-small",
    "create-vm later --profile t4-small --no-wait",
    "create-vm dry --profile t4-small --dry-run",
    "create-vm wrong --profile nothing",
    "show-vm nobody",
    "doctor --repair -o json",
    "doctor --host nowhere",
    "stop-vm train -o yaml",
    "start-vm train -o json",
    "operation show 00000000-0000-4000-8000-000000000008",
    "operation abandon 00000000-0000-4000-8000-000000000008",
)
LONG_VALUES = ("list-vms -o wide", "host list -o csv", "show-vm", "host show", "gpu show", "profile show", "explain")
"""Details are never cut: a value that does not fit wraps in the terminal."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The story, told once; its server stays for the views."""
    with pytest.MonkeyPatch.context() as patch, running_server(tmp_path_factory.mktemp("golden")) as state:
        patch.setenv("VGPUCTL_STATE", str(state))
        patch.delenv("COLUMNS", raising=False)
        patch.setattr(ages, "now", lambda: EPOCH + 7200)
        yield {words: told_by(words) for words in STORY}


@pytest.mark.parametrize("words", STORY)
def test_a_story_is_told_as_it_was(told: dict[str, str], words: str) -> None:
    check(f"story-{file_name(words)}", told[words])


@pytest.mark.parametrize("words", VIEWS)
@pytest.mark.usefixtures("told")
def test_a_view_looks_as_it_did(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in told_by(words)
    check_view(words, lambda: told_by(words), LONG_VALUES, monkeypatch)
