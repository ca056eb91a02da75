# SPDX-License-Identifier: Apache-2.0
"""A fence agent is told what to do on its standard input, and believed when it sees the power off."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.fencing.agents import FenceAgents
from orchestrator.core.errors import Conflict, Retryable, VgpuctlError

OPTIONS = "agent=fence_test\n# of the BMC\nip=192.0.2.7\nusername=admin\npassword=planted-secret\n"
ON, OFF, BROKEN = 0, 2, 1


class Rig:
    """An agent that writes down what it was given, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "sbin").mkdir()
        (directory / "fencing").mkdir()
        self.agents = FenceAgents(directory=directory / "fencing", programs=directory / "sbin", limit_s=5.0)
        self.file = directory / "fencing" / "gpu-7.conf"
        self.say(OPTIONS)
        self.ends(off=0, status=OFF)

    def say(self, text: str, mode: int = 0o600) -> None:
        self.file.write_text(text)
        self.file.chmod(mode)

    def ends(self, *, off: int, status: int, and_says: str = "", sleeps_s: int = 0) -> None:
        program = self.directory / "sbin" / "fence_test"
        program.write_text(
            "#!/bin/sh\n"
            f"cat > {self.directory}/given; cat {self.directory}/given >> {self.directory}/all; sleep {sleeps_s}\n"
            f'echo "$#" >> {self.directory}/arguments; env >> {self.directory}/environment\n'
            f'echo "{and_says}" >&2\n'
            f"grep -q action=off {self.directory}/given && exit {off}\nexit {status}\n"
        )
        program.chmod(0o755)

    def read(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def refused(rig: Rig, host: str = "gpu-7") -> VgpuctlError:
    with pytest.raises(VgpuctlError) as caught:
        rig.agents.power_off(host)
    return caught.value


def test_it_gets_its_options_on_its_input_alone(rig: Rig) -> None:
    assert rig.agents.knows("gpu-7")
    assert "sees it off" in rig.agents.power_off("gpu-7")
    options = "ip=192.0.2.7\nusername=admin\npassword=planted-secret\naction="
    assert rig.read("all") == f"{options}off\n{options}status\n"
    assert rig.read("arguments").split() == ["0", "0"]
    assert "planted-secret" not in rig.read("environment")


def test_power_that_is_still_on_is_not_believed(rig: Rig) -> None:
    rig.ends(off=0, status=ON)
    error = refused(rig)
    assert (error.code, type(error)) == ("fence.failed", Retryable)


def test_what_it_says_is_told_without_the_password(rig: Rig) -> None:
    rig.ends(off=BROKEN, status=BROKEN, and_says="Unable to connect with planted-secret")
    assert refused(rig).message.endswith("(off): Unable to connect with ***")


def test_one_that_does_not_end_is_ended(rig: Rig) -> None:
    rig.agents = FenceAgents(directory=rig.agents.directory, programs=rig.agents.programs, limit_s=0.2)
    rig.ends(off=0, status=OFF, sleeps_s=2)
    assert "did not end in time" in refused(rig).message


@pytest.mark.parametrize(
    ("text", "mode", "code"),
    [
        (OPTIONS, 0o640, "fence.readable"),
        ("ip=192.0.2.7\n", 0o600, "fence.not_configured"),
        ("agent=/bin/sh\n", 0o600, "fence.not_configured"),
        ("agent=fence_test\naction=reboot\n", 0o600, "fence.not_configured"),
        ("agent=fence_test\n--help=1\n", 0o600, "fence.not_configured"),
        ("agent=fence_none\n", 0o600, "fence.no_agent"),
    ],
)
def test_a_file_that_is_not_right_begins_no_program(rig: Rig, text: str, mode: int, code: str) -> None:
    rig.say(text, mode)
    error = refused(rig)
    assert (error.code, type(error)) == (code, Conflict)
    assert rig.read("arguments") == ""


def test_a_host_without_a_file_is_not_known(rig: Rig) -> None:
    assert not rig.agents.knows("gpu-8")
    assert refused(rig, "gpu-8").code == "fence.not_configured"
