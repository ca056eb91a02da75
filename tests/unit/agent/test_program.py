# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.agent import build_zipapp
from orchestrator.agent.assembly import Config, read_config
from orchestrator.agent.build_zipapp import build_agent, subset
from orchestrator.agent.libvirt.console_keeping import ConsoleBounds
from orchestrator.core.errors import InvalidInput
from orchestrator.core.protocol import read_frame

GOOD = {"site": "s", "epoch": 1, "storage": "/var/lib/vgpuctl-agent"}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "vgpuctl-agent.pyz"
    build_agent(path)
    return path


def agent(package: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", "-S", str(package), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **environment},
    )


def test_the_same_code_gives_the_same_bytes_and_is_built_once(package: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    built = build_agent(again)
    assert built.sha256 == hashlib.sha256(package.read_bytes()).hexdigest()
    assert again.read_bytes() == package.read_bytes()
    written = again.stat().st_mtime_ns
    assert build_agent(again) == built
    assert again.stat().st_mtime_ns == written
    for damaged in (package.read_bytes()[:-1], package.read_bytes().replace(b"import", b"IMPORT", 1), b""):
        again.write_bytes(damaged)
        assert build_agent(again) == built
        assert again.read_bytes() == package.read_bytes()


def test_agents_that_are_built_at_once_are_built_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, at_once = list[int](), list[int]()

    def parsing(source: str, roots: Iterable[str], *, kept_prefix: str) -> str:
        begun.append(1)
        time.sleep(0.02)
        at_once.append(len(begun))
        begun.pop()
        return subset(source, roots, kept_prefix=kept_prefix)

    monkeypatch.setattr(build_zipapp, "subset", parsing)
    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(build_agent, [tmp_path / "agent.pyz"] * 3))) == 1
    assert at_once == [1, 1, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["agent.pyz"]


def test_the_file_runs_alone_and_knows_which_build_it_is(package: Path, tmp_path: Path) -> None:
    done = agent(package, "version")
    assert (done.returncode, done.stdout.decode().strip()) == (0, build_agent(tmp_path / "again.pyz").version)


def test_the_file_holds_the_agent_and_nothing_of_the_control_plane(package: Path) -> None:
    names = zipfile.ZipFile(package).namelist()
    assert {name.split("/")[1] for name in names if name.startswith("orchestrator/")} == {
        "__init__.py",
        "core",
        "agent",
    }
    assert sorted(name for name in names if "/" not in name) == ["__main__.py", "pynvml.py"]


@pytest.mark.parametrize("command", ["id", "vgpuctl-agent; id", "/bin/sh"])
def test_the_relay_refuses_any_other_command(package: Path, command: str) -> None:
    done = agent(package, "relay", SSH_ORIGINAL_COMMAND=command)
    assert done.returncode == 6


def test_the_relay_says_in_a_frame_that_no_agent_runs(package: Path, tmp_path: Path) -> None:
    done = agent(package, "relay", str(tmp_path / "none"), SSH_ORIGINAL_COMMAND="vgpuctl-agent")
    assert done.returncode == 9
    (tmp_path / "out").write_bytes(done.stdout)
    with (tmp_path / "out").open("rb") as out:
        message = read_frame(out)
    assert message is not None
    assert isinstance(message["error"], dict)
    assert message["error"]["code"] == "agent.not_running"


def test_a_good_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    assert read_config(tmp_path / "config.json") == Config("s", 1, Path("/var/lib/vgpuctl-agent"))


def test_a_configuration_may_say_how_much_of_what_guests_print_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**GOOD, "console_hours": 48}))
    assert read_config(tmp_path / "config.json").consoles == ConsoleBounds(hours=48, mib=8)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", json.dumps({**GOOD, "console_hours": "1"}), json.dumps({**GOOD, "console_mib": 0}),
     json.dumps({**GOOD, "epoch": "1"}), json.dumps({**GOOD, "epoch": True}),
     json.dumps({**GOOD, "site": ""}),
     json.dumps({**GOOD, "storage": "relative"}), json.dumps({**GOOD, "more": 1}), json.dumps({"site": "s"})],
)  # fmt: skip
def test_a_bad_configuration_is_one_line_and_exit_2(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InvalidInput):
        read_config(tmp_path / "config.json")


def test_serving_without_a_configuration_fails_in_one_line(package: Path, tmp_path: Path) -> None:
    done = agent(package, "serve", "--config", str(tmp_path / "none.json"))
    assert done.returncode != 0
