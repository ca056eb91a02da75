# SPDX-License-Identifier: Apache-2.0
"""The wheel on bare roots of both Debian releases, as docs/howto/upgrade-and-uninstall.md installs it: by pipx for
commands alone, with the list of what a server runs with for a server. Long: roots and packages are fetched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.packages.roots import PYTHONS, bare_root, said_in
from tools.tree import ROOT

UV: Final = Path(sys.executable).with_name("uv")
FLEET: Final = """\
groups:
  - {name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""
TRIED: Final = r"""
export HOME=/srv/home PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/wheels VGPUCTL_STATE=/srv/state
mkdir $HOME
logged() { "$@" >/srv/log 2>&1 || { cat /srv/log; exit 1; }; }
logged pipx install /srv/dist/vgpuctl-*.whl
commands=$HOME/.local/bin/vgpuctl
say "$($commands --version)"
say "$($commands list-vms 2>&1 | grep -o 'whl\[server\]' | head -1)"
logged pipx uninstall vgpuctl
[ ! -e $commands ]
python3 -m venv /opt/vgpuctl
logged /opt/vgpuctl/bin/pip install --require-hashes --no-deps -r /srv/dist/requirements.txt
logged /opt/vgpuctl/bin/pip install --no-deps /srv/dist/vgpuctl-*.whl
/opt/vgpuctl/bin/vgpuctl serve --simulate /srv/fleet.yaml >/srv/log 2>&1 &
server=$!
tries=0
until /opt/vgpuctl/bin/vgpuctl server status -o json | grep -q '"running": true'; do
    tries=$((tries + 1))
    kill -0 "$server" && [ "$tries" -lt 600 ] || { cat /srv/log; exit 1; }
    sleep 0.5
done
/opt/vgpuctl/bin/vgpuctl create-vm train --profile 'GRID T4-4Q' >/dev/null
say "$(/opt/vgpuctl/bin/vgpuctl list-vms -o name)"
/opt/vgpuctl/bin/vgpuctl server stop >/dev/null
wait "$server" || true
"""
_PLATFORMS: Final = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "packages/wheel", place], check=True)
    return place


def of_python(version: str, dist: Path, place: Path) -> Path:
    """Of the list what is for that Python: pip asks the one that runs it."""
    found = place / "requirements.txt"
    compiled = ["--python-version", version, "--python-platform", "x86_64-manylinux_2_34", "--no-deps"]
    subprocess.run(
        [UV, "pip", "compile", "--quiet", *compiled, "--generate-hashes", dist / "requirements.txt", "-o", found],
        check=True,
    )
    return found


def fetched(dist: Path, python: str, place: Path) -> Path:
    """All that is installed there, and what pipx wants of its own."""
    maker, wheels = place / "maker", place / "wheels"
    subprocess.run([sys.executable, "-m", "venv", maker], check=True)
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    fetch = [
        str(maker / "bin/pip"), "download", "--quiet", "--only-binary", ":all:", "--python-version", python, *platforms,
    ]  # fmt: skip
    wheel = next(dist.glob("*.whl"))
    subprocess.run([*fetch, "-d", wheels, wheel, "pip", "setuptools", "wheel"], check=True)
    subprocess.run([*fetch, "-d", wheels, "--no-deps", "-r", of_python(python, dist, place)], check=True)
    return wheels


@pytest.mark.soak
@pytest.mark.parametrize("release", PYTHONS)
def test_a_bare_debian_gets_commands_by_pipx_and_a_server_from_the_list(
    release: str, dist: Path, tmp_path: Path
) -> None:
    root = bare_root(release, tmp_path, "python3", "python3-venv", "pipx", "openssh-client")
    shutil.copytree(dist, root / "srv/dist")
    shutil.copytree(fetched(dist, PYTHONS[release], tmp_path), root / "srv/wheels")
    (root / "srv/fleet.yaml").write_text(FLEET)
    version = next(dist.glob("*.whl")).name.split("-")[1]
    assert said_in(root, TRIED) == [f"vgpuctl {version}", "whl[server]", "train"]
