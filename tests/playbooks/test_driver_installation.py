# SPDX-License-Identifier: Apache-2.0
"""The swap of a driver with the real Ansible, on a directory that has a host's files and programs that keep to it."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.configurator import due_reboot_of
from orchestrator.adapters.ansible.connection import GROUP, environment
from orchestrator.adapters.ansible.outcome import RunReport, error_of
from orchestrator.adapters.ansible.play import Play, run_play
from tests.playbooks.local_runs import ROOT

_PROGRAMS = {
    "uname": "echo 6.12.0",
    "modinfo": "exit 1",
    "nv-fabricmanager": 'echo "Fabric Manager version is : $(cat "$HOST/fabric" 2>/dev/null)"',
    "systemctl": (
        'echo "$*" >> "$HOST/asked"; unit=$(eval echo \\${$#}); case $1 in\n'
        'is-active) [ -e "$HOST/active/$unit" ] ;;\n stop) rm "$HOST/active/$unit" ;;\n'
        ' start|enable) touch "$HOST/active/$unit" ;;\n cat) [ -e "$HOST/active/$unit" ] ;;\n esac'
    ),
    "systemd-run": 'echo "$*" >> "$HOST/asked"',
    "modprobe": (
        'if [ "$1" = -r ]; then\n'
        '  ! grep -qx "$2" "$HOST/busy" 2>/dev/null || { echo "FATAL: Module $2 is in use." >&2; exit 1; }\n'
        '  rm -r "$HOST/sys/module/$2"; exit 0\nfi\n'
        '! grep -q "^install $1 " "$HOST/etc/modprobe.d/vgpuctl-swap.conf" 2>/dev/null || exit 1\n'
        '[ ! -e "$HOST/refuses" ] || { cat "$HOST/refuses" >&2; exit 1; }\n'
        'mkdir -p "$HOST/sys/module/$1"; [ "$1" = nvidia ] || exit 0\n'
        'cp "$HOST/built" "$HOST/sys/module/nvidia/version"'
    ),
}
_AGENT = "vgpuctl-agent.service"
_HOLD = "etc/modprobe.d/vgpuctl-swap.conf"


@dataclass(frozen=True)
class Host:
    """A host's files below ``root``."""

    root: Path

    def put(self, name: str, text: str = "") -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    @property
    def version(self) -> str | None:
        path = self.root / "sys/module/nvidia/version"
        return path.read_text().strip() if path.exists() else None

    @property
    def agent_runs(self) -> bool:
        return (self.root / "active" / _AGENT).exists()

    def boots(self) -> None:
        """Nothing is in use, no module is loaded, and systemd has started the agent."""
        (self.root / "busy").unlink(missing_ok=True)
        for module in (self.root / "sys/module").iterdir():
            shutil.rmtree(module)
        self.put("proc/sys/kernel/random/boot_id", "boot-2\n")
        self.put(f"active/{_AGENT}")

    def bring(self, version: str, script: str) -> dict[str, str]:
        """A bundle that was copied here; ``script`` is what its installer does."""
        return self.bring_file(version, f"#!/bin/sh\n{script}\n".encode(), "run")

    def bring_file(self, version: str, content: bytes, kind: str) -> dict[str, str]:
        sha256 = hashlib.sha256(content).hexdigest()
        self.put(f"bundles/{sha256}.{kind}")
        (self.root / f"bundles/{sha256}.{kind}").write_bytes(content)
        return {"sha256": sha256, "version": version, "format": kind}

    def install(
        self, driver: dict[str, str], fabric: dict[str, str] | None = None, name: str = "s", *, reboot: bool = False
    ) -> RunReport:
        scratch = self.root / name
        scratch.mkdir()
        given = {
            "directory": f"{self.root}/bundles",
            "root": str(self.root),
            "driver": driver,
            "fabric_manager": fabric,
            "reboot": reboot,
        }
        play = scratch / "swap.yml"
        play.write_text(
            "- hosts: vgpuctl_hosts\n  gather_facts: false\n  tasks:\n    - name: swap\n"
            f"      driver_installation: {json.dumps(given)}\n"
        )
        around = environment(scratch, ROOT / "playbooks/ansible.cfg")
        return run_play(
            Play(
                playbook=play,
                inventory={GROUP: {"hosts": {"gpu-1": {
                    "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
                }}}},
                environment={
                    **around, "HOST": str(self.root), "PATH": f"{self.root}/bin:{around['PATH']}",
                    "ANSIBLE_LIBRARY": str(ROOT / "playbooks/roles/vgpuctl_nvidia_host/library"),
                },
                scratch=scratch,
                timeout_s=120,
            confined=False,
            ),
            lambda _title: None,
        )  # fmt: skip


BUILDS = 'echo 580.95.05 > "$HOST/built"'


def host_at(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    for name, script in _PROGRAMS.items():
        made.put(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    made.put("sys/module/nvidia/version", "570.172.08\n")
    made.put("lib/modules/6.12.0/build")
    made.put("run/x")
    made.put("proc/sys/kernel/random/boot_id", "boot-1\n")
    for unit in (_AGENT, "nvidia-vgpu-mgr.service"):
        made.put(f"active/{unit}")
    return made


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return host_at(tmp_path)


def test_a_driver_is_swapped_and_a_second_run_changes_nothing(host: Host) -> None:
    driver = host.bring("580.95.05", BUILDS)
    assert error_of(host.install(driver), "gpu-1") is None
    assert (host.version, host.agent_runs) == ("580.95.05", True)
    swapped = (host.root / "run/vgpuctl-driver").read_text()
    asked = (host.root / "asked").read_text()
    assert asked.index("stop nvidia-vgpu-mgr") < asked.index(f"stop {_AGENT}") < asked.index(f"start {_AGENT}")
    again = host.install(driver, name="again")
    assert error_of(again, "gpu-1") is None
    assert "changed=0" in again.output
    assert (host.root / "run/vgpuctl-driver").read_text() == swapped
    assert (host.root / "asked").read_text() == asked


@pytest.mark.fault("F109")
def test_a_module_in_use_is_not_unloaded_and_everything_runs_on(host: Host) -> None:
    host.put("busy", "nvidia")
    failed = error_of(host.install(host.bring("580.95.05", BUILDS)), "gpu-1")
    assert failed is not None
    assert failed.code == "driver.module_busy"
    assert (host.version, host.agent_runs) == ("570.172.08", True)


def test_what_was_let_go_before_a_module_that_is_in_use_comes_back(host: Host) -> None:
    host.put("usr/lib/nvidia/sriov-manage", '#!/bin/sh\necho "sriov-manage $*" >> "$HOST/asked"\n')
    (host.root / "usr/lib/nvidia/sriov-manage").chmod(0o755)
    host.put("sys/module/nvidia_uvm/version")
    host.put("busy", "nvidia")
    failed = error_of(host.install(host.bring("580.95.05", BUILDS)), "gpu-1")
    assert failed is not None
    assert failed.code == "driver.module_busy"
    assert (host.root / "sys/module/nvidia_uvm").is_dir()
    asked = (host.root / "asked").read_text()
    assert asked.index("sriov-manage -d ALL") < asked.index(f"start {_AGENT}")
    assert (host.root / "run/vgpuctl-driver").exists(), "by that the agent puts the virtual functions back"


@pytest.mark.fault("F109")
def test_a_module_in_use_is_kept_away_from_the_next_boot_and_the_swap_ends_there(host: Host) -> None:
    host.put("busy", "nvidia")
    driver = host.bring("580.95.05", BUILDS)
    first = host.install(driver, name="first", reboot=True)
    assert error_of(first, "gpu-1") is None
    told = due_reboot_of(first.returned["reboot"], "gpu-1")
    assert told is not None
    assert (told.why, told.boot_id) == ("module nvidia is in use by somebody that shows no open file", "boot-1")
    assert (host.version, host.agent_runs) == ("570.172.08", False), "it is about to go down"
    assert "install nvidia /bin/false" in (host.root / _HOLD).read_text()
    again = host.install(driver, name="again", reboot=True)
    assert due_reboot_of(again.returned["reboot"], "gpu-1") == told, "on a boot that ends nothing is done but that"
    assert (host.root / "asked").read_text().count("systemctl reboot") == 2
    host.boots()
    assert error_of(host.install(driver, name="then", reboot=True), "gpu-1") is None
    assert (host.version, host.agent_runs) == ("580.95.05", True)
    assert not (host.root / _HOLD).exists()


def test_the_way_back_of_a_host_that_was_rebooted_needs_no_second_reboot(host: Host) -> None:
    host.put("busy", "nvidia")
    host.install(host.bring("580.95.05", BUILDS), name="first", reboot=True)
    old = host.bring("570.172.08", 'echo 570.172.08 > "$HOST/built"')
    assert "reboot" in host.install(old, name="cancelled", reboot=True).returned, "that boot ends all the same"
    host.boots()
    assert error_of(host.install(old, name="back", reboot=True), "gpu-1") is None
    assert (host.version, host.agent_runs) == ("570.172.08", True)
    assert not (host.root / _HOLD).exists()


def test_a_module_that_is_in_use_after_its_reboot_too_is_no_cause_for_another(host: Host) -> None:
    host.put("busy", "nvidia")
    driver = host.bring("580.95.05", BUILDS)
    host.install(driver, name="first", reboot=True)
    host.boots()
    host.put("busy", "nvidia")
    host.put("sys/module/nvidia/version", "570.172.08\n")
    failed = error_of(host.install(driver, name="then", reboot=True), "gpu-1")
    assert failed is not None
    assert (failed.code, "also after a reboot" in failed.message) == ("driver.module_busy", True)
    assert host.agent_runs
    assert not (host.root / _HOLD).exists()


def test_a_host_on_which_somebody_runs_vms_is_not_rebooted(host: Host) -> None:
    host.put("busy", "nvidia")
    host.put("proc/4711/comm", "qemu-system-x86\n")
    failed = error_of(host.install(host.bring("580.95.05", BUILDS), reboot=True), "gpu-1")
    assert failed is not None
    assert (failed.code, "1 VMs run there" in failed.message) == ("driver.module_busy", True)
    assert (host.version, host.agent_runs) == ("570.172.08", True)


def test_a_host_that_refuses_its_reboot_is_as_before(host: Host) -> None:
    host.put("busy", "nvidia")
    host.put("bin/systemd-run", "#!/bin/sh\necho no bus >&2; exit 1\n")
    failed = error_of(host.install(host.bring("580.95.05", BUILDS), reboot=True), "gpu-1")
    assert failed is not None
    assert failed.code == "host.reboot_refused"
    assert (host.version, host.agent_runs, (host.root / _HOLD).exists()) == ("570.172.08", True, False)


@pytest.mark.parametrize(("following", "built_for", "reboots"), [
    ("6.12.10", "580.95.05", True),
    ("6.12.10", "570.172.08", False),
    ("6.1.0", "580.95.05", False),
    ("6.12.0", "580.95.05", False),
])  # fmt: skip
def test_a_newer_kernel_that_waits_is_begun_if_the_driver_was_built_for_it(
    host: Host, following: str, built_for: str, reboots: bool
) -> None:
    (host.root / "vmlinuz").symlink_to(f"boot/vmlinuz-{following}")
    host.put("bin/modinfo", f'#!/bin/sh\n[ "$1 $2" = "-k {following}" ] && echo {built_for}\n')
    driver = host.bring("580.95.05", BUILDS)
    first = host.install(driver, name="first", reboot=True)
    assert ("reboot" in first.returned, host.version, host.agent_runs) == (reboots, "580.95.05", not reboots)
    assert not (host.root / _HOLD).exists()
    host.boots()
    host.put("sys/module/nvidia/version", "580.95.05\n")
    then = host.install(driver, name="then", reboot=True)
    assert ("reboot" in then.returned, error_of(then, "gpu-1")) == (False, None)


@pytest.mark.fault("F115")
def test_a_run_whose_controller_died_is_waited_for_by_the_next(host: Host) -> None:
    slow = 'mkdir "$HOST/alone" || exit 9; echo 570.195.03 > "$HOST/built"; sleep 3; rmdir "$HOST/alone"'
    first, second = host.bring("570.195.03", slow), host.bring("580.95.05", f'mkdir "$HOST/alone" || exit 9\n{BUILDS}')
    with ThreadPoolExecutor(1) as pool:
        earlier = pool.submit(host.install, first, None, "first")
        while not (host.root / "alone").exists():
            assert not wait([earlier], timeout=0.1).done, earlier.result().output
        later = host.install(second, name="second")
    assert error_of(earlier.result(), "gpu-1") is None
    assert error_of(later, "gpu-1") is None
    assert host.version == "580.95.05"


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        (
            "echo 'ERROR: Failed to run dkms build: Bad return status for module build' >&2; exit 1",
            "driver.dkms_failed",
            "DKMS could not build the module",
        ),
        ("echo 'ERROR: Unable to find the kernel source tree' >&2; exit 1", "driver.headers_missing", "headers"),
        ("echo 'modprobe: ERROR: Key was rejected by service' >&2; exit 1", "driver.secure_boot", "not signed"),
        ("echo 'E: Could not get lock /var/lib/dpkg/lock' >&2; exit 1", "host.package_lock", "another one is at work"),
        ("exit 3", "driver.install_failed", "the installer of 580.95.05 failed: exit code 3"),
        ('echo "modprobe: Required key not available" > "$HOST/refuses"', "driver.secure_boot", "not signed"),
        ('echo "modprobe: No such device" > "$HOST/refuses"', "driver.not_loaded", "does not load: modprobe: No such"),
    ],
)
def test_each_way_an_installation_fails_has_its_code_and_the_agent_answers_after_it(
    host: Host, script: str, code: str, words: str
) -> None:
    failed = error_of(host.install(host.bring("580.95.05", f"{BUILDS}\n{script}")), "gpu-1")
    assert failed is not None
    assert failed.code == code
    assert words in failed.message
    assert host.agent_runs


@pytest.mark.fault("F113")
def test_another_version_than_the_bundles_is_not_accepted(host: Host) -> None:
    failed = error_of(host.install(host.bring("580.95.05", 'echo 999.1.1 > "$HOST/built"')), "gpu-1")
    assert failed is not None
    assert failed.code == "driver.version_differs"


@pytest.mark.fault("F113")
@pytest.mark.parametrize(("brought", "code"), [(None, "missing"), ("580.65.06", "differs"), ("580.95.05", None)])
def test_a_host_with_nvswitches_needs_the_fabric_manager_of_the_drivers_version(
    host: Host, brought: str | None, code: str | None
) -> None:
    switch = "sys/bus/pci/devices/0000:05:00.0"
    host.put(f"{switch}/vendor", "0x10de\n")
    host.put(f"{switch}/class", "0x068000\n")
    fabric = None if brought is None else host.bring(brought, f'echo {brought} > "$HOST/fabric"')
    failed = error_of(host.install(host.bring("580.95.05", BUILDS), fabric), "gpu-1")
    assert (None if failed is None else failed.code) == (None if code is None else f"driver.fabric_manager_{code}")


def test_headers_that_are_missing_are_noticed_before_anything_is_stopped(host: Host) -> None:
    (host.root / "lib/modules/6.12.0/build").unlink()
    failed = error_of(host.install(host.bring("580.95.05", BUILDS)), "gpu-1")
    assert failed is not None
    assert failed.code == "driver.headers_missing"
    assert not (host.root / "asked").exists()


@pytest.mark.fault("F120")
def test_a_file_that_changed_on_its_way_is_not_run(host: Host) -> None:
    driver = host.bring("580.95.05", BUILDS)
    path = host.root / f"bundles/{driver['sha256']}.run"
    path.write_text(path.read_text() + "true\n")
    failed = error_of(host.install(driver), "gpu-1")
    assert failed is not None
    assert failed.code == "bundle.damaged"
    assert host.version == "570.172.08"
