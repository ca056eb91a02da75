# SPDX-License-Identifier: Apache-2.0
"""What ``make dist`` makes of this tree, used where the tree is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect_running
from tools.tree import ROOT

FLEET = """\
groups:
  - {name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has the wheel and its lock, and nothing else."""
    place = tmp_path_factory.mktemp("installed")
    _run(ROOT / "packages/wheel", place / "dist")
    _run(sys.executable, "-m", "venv", "--without-pip", place / "venv")
    install = (UV, "pip", "install", "--quiet", "--python", place / "venv/bin/python")
    _run(*install, "--require-hashes", "--no-deps", "-r", place / "dist/requirements.txt")
    _run(*install, "--no-deps", *(place / "dist").glob("*.whl"))
    return place / "venv/bin/vgpuctl"


def _run(*words: str | Path, state: Path | None = None) -> str:
    """What it prints; in a directory that is not the tree when ``state`` is given, and for the server there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VGPUCTL_", "PYTHON"))}
    if state is not None:
        environment |= {"VGPUCTL_STATE": str(state)}
    done = subprocess.run(words, cwd=state, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def test_the_wheel_says_its_version_and_serves_simulated_hosts_from_any_directory(
    program: Path, tmp_path: Path
) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    wheel = next((program.parents[2] / "dist").glob("*.whl"))
    assert _run(program, "--version", state=tmp_path).split()[-1] == wheel.name.split("-")[1]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [program, "serve", "--simulate", "fleet.yaml"],
            cwd=tmp_path, env={**os.environ, "VGPUCTL_STATE": str(tmp_path)}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 300
        while (connection := connect_running(tmp_path)) is None:
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, "the server did not answer"
            time.sleep(0.05)
        connection.close()
        _run(program, "create-vm", "train", "--profile", "GRID T4-4Q", state=tmp_path)
        assert "running" in _run(program, "list-vms", state=tmp_path)
    finally:
        server.terminate()
        server.wait(timeout=60)


def test_the_lock_has_all_that_the_extras_of_the_wheel_ask_for(program: Path) -> None:
    wheel = next((program.parents[2] / "dist").glob("*.whl"))
    wanted = (f"vgpuctl[{extra}] @ {wheel.as_uri()}" for extra in ("server", "login"))
    _run(UV, "pip", "install", "--quiet", "--no-index", "--python", program.with_name("python"), *wanted)
    _run(UV, "pip", "check", "--quiet", "--python", program.with_name("python"))


def test_whoever_installs_the_wheel_finds_what_it_reads_beside_its_code(program: Path) -> None:
    package = next(program.parents[1].glob("lib/python*/site-packages/orchestrator"))
    shipped = {
        (part, file.relative_to(ROOT / part).as_posix())
        for part in ("vgpu_profiles", "playbooks")
        for file in (ROOT / part).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {one for one in shipped if not (package / "_data" / one[0] / one[1]).is_file()} == set()
    code = {file.relative_to(ROOT / "orchestrator") for file in (ROOT / "orchestrator").rglob("*.py")}
    assert {file for file in code if not (package / file).is_file()} == set()


def test_a_program_imports_the_client_and_its_types(program: Path, tmp_path: Path) -> None:
    asked = "import vgpuctl; print(vgpuctl.__file__, vgpuctl.open_client.__name__, vgpuctl.models.Vm.__name__)"
    file, *names = _run(program.with_name("python"), "-c", asked, state=tmp_path).split()
    assert Path(file).is_relative_to(program.parents[1])
    assert names == ["open_client", "Vm"]
    assert Path(file).with_name("py.typed").is_file()
