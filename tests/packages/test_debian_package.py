# SPDX-License-Identifier: Apache-2.0
"""The Debian package on bare roots of both releases, without a network. Long: they are made from the archive."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from packages.tree_version import debian_version
from tests.packages.roots import PYTHONS, bare_root, said_in
from tools.tree import ROOT

FLEET = """\
groups:
  - {name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""
TRIED = r"""
as_service() { setpriv --reuid vgpuctl --regid vgpuctl --init-groups env VGPUCTL_STATE=/var/lib/vgpuctl "$@"; }
dpkg -i /srv/vgpuctl.deb >/dev/null
say "$(vgpuctl --version)"
say "$(stat -c '%U %G %a' /var/lib/vgpuctl)"
say "$(grep ^ExecStart= /usr/lib/systemd/system/vgpuctl.service)"
say "$(basename /etc/systemd/system/*.wants/vgpuctl.service)"
say "$(find /usr/share/man/man1/vgpuctl-create-vm.1.gz /usr/share/bash-completion/completions/vgpuctl | wc -l) pages"
for part in /usr/lib/vgpuctl/*/lib; do echo 'def' >"$part/broken.py"; done
/var/lib/dpkg/info/vgpuctl.postinst triggered 2>&1 | grep -q broken.py && say "told what does not compile"
rm /usr/lib/vgpuctl/*/lib/broken.py
install -o vgpuctl -m 600 /srv/fleet.yaml /var/lib/vgpuctl/fleet.yaml
as_service vgpuctl serve --simulate /var/lib/vgpuctl/fleet.yaml >/srv/log 2>&1 &
server=$!
tries=0
until as_service vgpuctl server status -o json | grep -q '"running": true'; do
    tries=$((tries + 1))
    kill -0 "$server" && [ "$tries" -lt 600 ] || { cat /srv/log; exit 1; }
    sleep 0.5
done
as_service vgpuctl create-vm train --profile 'GRID T4-4Q' >/dev/null
say "$(as_service vgpuctl list-vms -o name)"
as_service vgpuctl server stop >/dev/null
wait "$server" || true
dpkg -r vgpuctl >/dev/null
[ ! -e /usr/lib/vgpuctl ] && [ ! -e /usr/bin/vgpuctl ]
say "kept $(basename /var/lib/vgpuctl/vgpuctl.sqlite*)"
dpkg --purge vgpuctl >/dev/null
[ ! -e /var/lib/vgpuctl ] && ! getent passwd vgpuctl && ! getent group vgpuctl
say gone
"""


EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    for step in ("packages/wheel", "packages/deb"):
        subprocess.run([ROOT / step, place], env=os.environ | EPOCH, check=True)
    return next(place.glob("*.deb"))


@pytest.mark.soak
@pytest.mark.parametrize("release", PYTHONS)
def test_a_bare_debian_gets_a_server_from_the_package_alone_and_loses_it_again(
    release: str, package: Path, tmp_path: Path
) -> None:
    root = bare_root(release, tmp_path, "python3", "openssh-client", "init-system-helpers")
    shutil.copy(package, root / "srv/vgpuctl.deb")
    (root / "srv/fleet.yaml").write_text(FLEET)
    said = said_in(root, TRIED)
    version = next(package.parent.glob("*.whl")).name.split("-")[1]
    assert package.name.split("_")[1] == debian_version(version)
    assert said == [
        f"vgpuctl {version}", "vgpuctl vgpuctl 700", "ExecStart=/usr/bin/vgpuctl serve", "vgpuctl.service", "2 pages",
        "told what does not compile",
        "train", "kept vgpuctl.sqlite", "gone",
    ]  # fmt: skip


@pytest.mark.soak
def test_the_same_tree_gives_the_same_package(package: Path, tmp_path: Path) -> None:
    shutil.copytree(package.parent, tmp_path, dirs_exist_ok=True)
    again = tmp_path / package.name
    again.unlink()
    subprocess.run([ROOT / "packages/deb", tmp_path], env=os.environ | EPOCH, check=True)
    assert again.read_bytes() == package.read_bytes()
