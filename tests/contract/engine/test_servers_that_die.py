# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect_running
from tests.contract.engine.live_site import LIMIT_S, ROOT, Site, created, one_of_each
from tests.fakes.several import until

DEFINITIONS = "orchestrator/operations/definitions/vms.py"
OTHER_ORDER = (
    ("storage.VOLUME, storage.SEED)", "storage.SEED, storage.VOLUME)"),
    ("(domain.START, domain.GUEST_SEEN, vm_record.RUNNING)", "(domain.START, vm_record.RUNNING)"),
)
OTHER_STEP = (
    (
        "from orchestrator.operations.step import",
        "from dataclasses import replace\n\nfrom orchestrator.operations.step import",
    ),
    ("(domain.START, domain.GUEST_SEEN,", '(domain.START, replace(domain.GUEST_SEEN, name="guest_seen.0"),'),
)


def older(directory: Path, *edits: tuple[str, str]) -> Path:
    """A tree of the program as it was before its step lists became what they are."""
    tree = directory / "older"
    shutil.copytree(ROOT / "orchestrator", tree / "orchestrator")
    for name in ("tests", "vgpu_profiles", "playbooks"):
        (tree / name).symlink_to(ROOT / name)
    text = (tree / DEFINITIONS).read_text()
    for before, after in edits:
        assert text.count(before) == 1
        text = text.replace(before, after)
    (tree / DEFINITIONS).write_text(text)
    return tree


def begun_by_older(site: Site, tree: Path) -> str:
    """Killed in the middle of the operation."""
    killed = site.server("one", "kill", "after", "MakeVgpu", program=tree)
    operation = created(site, "one")
    assert killed.wait(LIMIT_S) == -signal.SIGKILL
    assert site.plane.services.operations.get(operation).state == "running"
    return operation


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_an_operation_begun_with_an_older_list_of_steps_is_finished_by_the_newer_program(
    site_on: Callable[[str], Site], tmp_path: Path, backend: str
) -> None:
    site = site_on(backend)
    operation = begun_by_older(site, older(tmp_path, *OTHER_ORDER))
    stored = [step.name for step in site.plane.services.operations.get(operation).steps]
    assert stored.index("seed.1") < stored.index("volume.1")
    assert "guest_seen.1" not in stored
    site.server("one")
    ended = site.finished(operation)
    assert (ended.state, ended.attempt) == ("done", 2)
    assert [step.name for step in ended.steps] == stored
    one_of_each(site.machine())


def test_an_operation_begun_with_an_older_list_of_steps_is_taken_back_by_the_newer_program(
    site_on: Callable[[str], Site], tmp_path: Path
) -> None:
    site = site_on("postgresql")
    before = site.machine().state()
    operation = begun_by_older(site, older(tmp_path, *OTHER_ORDER))
    site.plane.services.operations.cancel(operation)
    site.server("one")
    assert site.finished(operation).state == "undone"
    assert site.machine().state() == before
    assert site.plane.services.vms.list(None) == ()


def test_a_step_that_the_newer_program_does_not_know_is_left_to_the_one_that_does(
    site_on: Callable[[str], Site], tmp_path: Path
) -> None:
    site = site_on("sqlite")
    before = site.machine().state()
    tree = older(tmp_path, *OTHER_STEP)
    operation = begun_by_older(site, tree)
    begun = site.machine().state()
    newer = site.server("one")
    stuck = site.finished(operation)
    assert stuck.error is not None
    assert (stuck.state, stuck.error["code"]) == ("stuck", "operation.unknown_step")
    assert "guest_seen.0" in str(stuck.error["message"])
    assert stuck.remainder
    assert site.machine().state() == begun
    newer.terminate()
    newer.wait(LIMIT_S)
    site.server("one", program=tree)
    site.plane.services.operations.retry(operation)
    until(lambda: site.plane.services.operations.get(operation).state == "undone")
    assert site.machine().state() == before


def test_one_of_two_servers_finishes_what_the_other_was_killed_in(site_on: Callable[[str], Site]) -> None:
    site = site_on("postgresql")
    both = [site.server(name, "kill", "after", "MakeVgpu") for name in ("one", "two")]
    until(lambda: connect_running(site.state("two")) is not None)
    operation = created(site, "one")
    until(lambda: any(server.poll() is not None for server in both))
    killed = time.monotonic()
    assert sorted(server.poll() is None for server in both) == [False, True]
    ended = site.finished(operation)
    print(f"finished {time.monotonic() - killed:.1f} s after the server that did it was killed")
    assert (ended.state, ended.attempt) == ("done", 2)
    one_of_each(site.machine())
