# SPDX-License-Identifier: Apache-2.0
"""The newcomer's page is true after its demo, on a simulated host. tests/lab types all of it, where a demo is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.fakes.simulated import serving_fleet, wish
from tests.fakes.typed import PATH
from tests.lab.walkthrough import Command, commands_of, walk

PAGE: Final = Path(__file__).parents[2] / "docs/tutorial/two-tenants.md"
FLEET: Final = "groups:\n  - {name: new, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}\n"
_DEMO: Final = 2
"""So many commands of the page make what is simulated here."""


def _simulated(command: Command) -> Command:
    """Of a host that has a number, and with the image that it has."""
    line = command.line.replace("--image guest", "--image demo").replace("host remove new", "host remove new-0")
    return replace(command, line=line, answer=command.answer.replace("new ", "new-0 "))


def test_all_that_the_page_of_two_tenants_shows_after_its_demo_is_so(tmp_path: Path) -> None:
    commands = commands_of(PAGE)
    assert commands[_DEMO].line == "vgpuctl delete-vm demo"
    with serving_fleet(tmp_path, FLEET) as client:
        client.wait(client.create_vm(wish("demo", "GRID T4-4Q")))
        typed = [_simulated(command) for command in commands[_DEMO:]]
        walk(typed, tmp_path, limit_s=300, VGPUCTL_STATE=str(tmp_path / "state"), PATH=PATH)
