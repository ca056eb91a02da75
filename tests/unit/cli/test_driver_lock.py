# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "drivers.lock.yaml"


def test_nothing_is_locked_at_first(cli: Cli) -> None:
    assert cli("driver", "lock", "show").out.startswith("no versions are locked")
    checked = cli("driver", "check").out.splitlines()
    assert checked == ["there are no hosts yet", "0 compared, 0 not as they should be, 0 that nobody can judge"]
    assert cli("driver", "check", "--verdict", "drift").out.startswith("nothing compares so\n")
    assert "[host.unknown]" in cli("driver", "check", "--host", "gpu-*").err
    assert cli("driver", "check", "--verdict", "bad").code == 2


def test_a_lock_is_applied_shown_and_replaced(cli: Cli, lock_file: Path) -> None:
    lock_file.write_text(
        "schema_version: 1\nsite: {host_driver: 580.65.05}\n"
        "groups:\n  canary: {labels: ring=canary, host_driver: 580.82.02}\n"
    )
    done = cli("driver", "lock", "apply", str(lock_file))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1].split() == ["site", "all", "others", "host_driver", "580.65.05", "-"]
    assert done.out == cli("driver", "lock", "show").out
    lock_file.write_text("schema_version: 1\nsite: {}\n")
    assert cli("driver", "lock", "apply", str(lock_file)).code == 0
    assert json.loads(cli("driver", "lock", "show", "-o", "json").out) == {"site": [], "groups": []}


def test_a_group_that_has_what_the_site_has_is_shown(cli: Cli, lock_file: Path) -> None:
    lock_file.write_text(
        "schema_version: 1\nsite: {host_driver: 580.65.05}\ngroups:\n  kept: {labels: ring=kept}\n"
        "  rest: {labels: ring, host_driver: 580.82.02}\n"
    )
    done = cli("driver", "lock", "apply", str(lock_file))
    assert [line.split()[:3] for line in done.out.splitlines()[2:]] == [
        ["kept", "ring=kept", "-"], ["rest", "ring", "host_driver"],
    ]  # fmt: skip
    lock_file.write_text("schema_version: 1\nsite: {}\n")
    cli("driver", "lock", "apply", str(lock_file))


def test_a_lock_that_cannot_be_changes_nothing(cli: Cli, lock_file: Path) -> None:
    before = cli("driver", "lock", "show").out
    for text in ("site: [\n", "schema_version: 1\nsite: {fabric_manager: 580.65.05}\n", "\0", "schema_version: 1\n"):
        lock_file.write_text(text)
        refused = cli("driver", "lock", "apply", str(lock_file))
        assert (refused.code, refused.out) == (2, "")
        assert "[lock.invalid]" in refused.err
        assert "Traceback" not in refused.err
    assert "[file.unreadable]" in cli("driver", "lock", "apply", "/nowhere/x.yaml").err
    assert cli("driver", "lock", "show").out == before


def test_an_images_driver_is_said_and_taken_back(cli: Cli) -> None:
    assert cli("image", "guest-driver", "guest", "580.65.06").out == "guest: 580.65.06\n"
    assert json.loads(cli("image", "list", "-o", "json").out)[0]["guest_driver"] == "580.65.06"
    assert cli("image", "guest-driver", "guest", "none").out == "guest: nobody knows which driver is in it\n"
    assert "[driver.version_invalid]" in cli("image", "guest-driver", "guest", "new").err
    assert cli("image", "guest-driver", "nobody", "580.65.06").code == 4
