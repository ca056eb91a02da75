# SPDX-License-Identifier: Apache-2.0
"""Drivers that come as packages: debs by the real apt and dpkg in a root of their own, rpms by a dnf that stands in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.outcome import error_of
from tests.playbooks.test_driver_installation import Host, host_at

_APT = """\
exec unshare --map-root-user env PATH=/usr/sbin:/usr/bin:/sbin:/bin apt-get -o Dir::State=$HOST/apt/state \\
  -o Dir::State::status=$HOST/var/lib/dpkg/status -o Dir::Cache=$HOST/apt/cache -o Dir::Etc=$HOST/apt/etc \\
  -o Dir::Log=$HOST/apt/log -o APT::Sandbox::User=root -o DPkg::Options::=--root=$HOST \\
  -o DPkg::Options::=--force-script-chrootless "$@"
"""
_DNF = """\
echo "$*" >> "$HOST/asked"; for file; do :; done
[ "$1 $2 $3 $4" = "install --assumeyes --allowerasing --disablerepo=*" ] || exit 9
sed -n 's/^built //p' "$file" > "$HOST/built"
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = host_at(tmp_path)
    for name, script in (("apt-get", _APT), ("dnf", _DNF)):
        made.put(f"bin/{name}", f"#!/bin/sh\n{script}")
        (tmp_path / "bin" / name).chmod(0o755)
    for directory in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "apt/state/lists/partial",
                      "apt/cache/archives/partial", "apt/etc", "apt/log"):  # fmt: skip
        (tmp_path / directory).mkdir(parents=True)
    made.put("var/lib/dpkg/status")
    return made


def deb(host: Host, version: str, script: str = 'echo "$VERSION" > "$DPKG_ROOT/built"') -> dict[str, str]:
    """A package of the driver's; ``script`` is what it does once it is unpacked."""
    tree = host.root / f"deb-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: nvidia-vgpu-ubuntu-580\nVersion: {version}\nArchitecture: amd64\n"
        "Maintainer: Site <ops@example.org>\nDescription: the driver\n"
    )
    (tree / "DEBIAN/conffiles").write_text("/etc/vgpu.conf\n")
    (tree / "etc").mkdir()
    (tree / "etc/vgpu.conf").write_text(f"of {version}\n")
    (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\nset -e\nVERSION={version}\n{script}\n")
    (tree / "DEBIAN/postinst").chmod(0o755)
    made = host.root / f"{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, made], check=True, capture_output=True)
    return host.bring_file(version, made.read_bytes(), "deb")


def test_a_deb_is_put_on_a_host_and_the_older_one_again(host: Host) -> None:
    old, new = deb(host, "580.65.05"), deb(host, "580.95.05")
    ran = host.install(new, name="new")
    assert error_of(ran, "gpu-1") is None, ran.output
    assert (host.version, host.agent_runs) == ("580.95.05", True)
    (host.root / "etc/vgpu.conf").write_text("changed by a person\n")
    ran = host.install(old, name="old")
    assert error_of(ran, "gpu-1") is None, ran.output
    assert host.version == "580.65.05"
    assert (host.root / "etc/vgpu.conf").read_text() == "changed by a person\n", "nobody is asked, and it stays"
    assert "changed=0" in host.install(old, name="again").output


def test_a_deb_whose_module_is_not_built_says_why_and_the_agent_answers_after_it(host: Host) -> None:
    ran = host.install(deb(host, "580.95.05", "echo 'Error! Bad return status for module build' >&2; exit 10"))
    failed = error_of(ran, "gpu-1")
    assert failed is not None
    assert (failed.code, host.agent_runs) == ("driver.dkms_failed", True), ran.output


def test_an_rpm_is_put_on_a_host_from_no_repository(host: Host) -> None:
    ran = host.install(host.bring_file("580.95.05", b"built 580.95.05\n", "rpm"))
    assert error_of(ran, "gpu-1") is None, ran.output
    assert (host.version, host.agent_runs) == ("580.95.05", True)
