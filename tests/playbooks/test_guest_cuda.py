# SPDX-License-Identifier: Apache-2.0
"""The role that puts the CUDA toolkit into guests, with the real Ansible and packages that stand in for NVIDIA's."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, results_of, versions_of
from orchestrator.adapters.ansible.outcome import RunReport
from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.drivers.matrix import cuda_releases
from orchestrator.core.errors import VgpuctlError
from tests.playbooks.guest_with_packages import PackagedGuest

CUDNN = "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return %d; }\n"
NVCC = 'echo "Cuda compilation tools, release 12.8, V12.8.93"'


@pytest.fixture
def guest(tmp_path: Path) -> PackagedGuest:
    made = PackagedGuest.made(tmp_path)
    made.put("sys/module/nvidia/version", "570.172.08\n")
    made.program("nvcc", NVCC)
    for package in ("cuda-toolkit-12-8", "nvidia-cuda-toolkit"):
        made.put(f"unpacks/{package}", 'd=$GUEST/usr/local/cuda-12.8/bin; mkdir -p "$d"; cp "$GUEST/nvcc" "$d/nvcc"\n')
    return made


def _run(guest: PackagedGuest, locked: str | None = None, name: str = "s", **more: object) -> RunReport:
    toolkits = [asdict(one) for one in cuda_releases(shipped().driver_matrix, locked)]
    variables = {"toolkits": toolkits, "root": str(guest.root), "directory": f"{guest.root}/brought", **more}
    return guest.run("vgpuctl_guest_cuda", name, {f"vgpuctl_guest_cuda_{key}": one for key, one in variables.items()})


def _error(report: RunReport) -> VgpuctlError:
    error = guest_error_of(report, "default/train", GUEST)
    assert error is not None, report.output
    return error


def test_the_newest_toolkit_that_goes_with_the_driver_is_installed_and_a_second_run_changes_nothing(
    guest: PackagedGuest,
) -> None:
    guest.offers(cuda_toolkit_13_0="13.0.2-1", cuda_toolkit_12_8="12.8.1-1", cuda_toolkit_12_4="12.4.1-1")
    first = _run(guest)
    assert guest_error_of(first, "default/train", GUEST) is None, first.output
    assert guest.installed == {"cuda-toolkit-12-8"}
    assert versions_of(first)["cuda_toolkit"] == "12.8"
    (result,) = results_of(first, at=0.0, operation="o")
    assert (result.role, result.state, result.tasks_changed) == ("guest_cuda", "changed", 1)
    asked = guest.asked
    again = _run(guest, name="again")
    (result,) = results_of(again, at=0.0, operation="o")
    assert (result.state, versions_of(again)["cuda_toolkit"], guest.asked) == ("ok", "12.8", asked)


def test_the_distributions_own_toolkit_serves_where_nvidias_is_not(guest: PackagedGuest) -> None:
    guest.offers(nvidia_cuda_toolkit="12.4.131~12.4.1-2")
    _run(guest)
    assert guest.installed == {"nvidia-cuda-toolkit"}


def test_a_locked_toolkit_is_taken_in_its_update_or_not_at_all(guest: PackagedGuest) -> None:
    guest.offers(cuda_toolkit_12_8="12.8.0-1", cuda_toolkit_12_9="12.9.1-1")
    error = _error(_run(guest, "12.8 Update 1"))
    assert error.code == "guest.no_package"
    assert "cuda-toolkit-12-8 12.8.1" in error.message
    assert "they have cuda-toolkit-12-8 12.8.0-1" in error.message
    guest.offers(cuda_toolkit_12_8="12.8.1-1")
    assert guest_error_of(_run(guest, "12.8 Update 1", "then"), "default/train", GUEST) is None
    assert guest.installed == {"cuda-toolkit-12-8"}


@pytest.mark.parametrize(("driver", "locked", "code", "words"), [
    (None, None, "guest.no_driver", "no driver"),
    ("570.172.08", "13.0 GA", "guest.cuda_forbidden", "row cuda_minor_compat 13.x"),
    ("570.172.08", None, "guest.no_package", "no repository of the guest has cuda-toolkit-12-9 12.9"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name_and_nothing_is_installed(
    guest: PackagedGuest, driver: str | None, locked: str | None, code: str, words: str
) -> None:
    if driver is None:
        (guest.root / "sys/module/nvidia/version").unlink()
    error = _error(_run(guest, locked))
    assert error.code == code
    assert words in error.message
    assert not guest.installed
    assert code == "guest.no_package" or not guest.asked


def test_a_package_that_would_bring_another_driver_is_not_installed(guest: PackagedGuest) -> None:
    guest.offers(nvidia_cuda_toolkit="12.0.140~12.0.1-4build4")
    guest.put("along/nvidia-cuda-toolkit", "Inst libnvidia-compute-535 (1 noble)\nInst libnvidia-ml-dev (1 noble)\n")
    error = _error(_run(guest))
    assert error.code == "guest.brings_driver"
    assert error.message.endswith("would bring another driver: libnvidia-compute-535")
    assert not guest.installed


def test_repositories_that_do_not_answer_and_another_package_manager_are_told(guest: PackagedGuest) -> None:
    guest.put("no-network", "E: Failed to fetch http://mirror.example/dists: no route to host")
    assert "no route to host" in _error(_run(guest)).message
    (guest.root / "no-network").unlink()
    guest.offers(cuda_toolkit_12_8="12.8.1-1")
    guest.put("locked", "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt)")
    assert _error(_run(guest, name="then")).code == "guest.package_lock"


def test_a_compiler_that_does_not_answer_fails_the_role(guest: PackagedGuest) -> None:
    guest.offers(cuda_toolkit_12_8="12.8.1-1")
    guest.program("nvcc", "exit 1")
    assert _error(_run(guest)).code == "guest.cuda_failed"


def _with_cudnn(guest: PackagedGuest, number: int, package: str) -> None:
    """Its toolkit is there, and that package would bring a cuDNN that tells this number."""
    guest.offers(cuda_toolkit_12_8="12.8.1-1")
    guest.put("cudnn.c", CUDNN % number)
    (guest.root / "lib").mkdir()
    guest.environment["LD_LIBRARY_PATH"] = str(guest.root / "lib")
    guest.put(f"unpacks/{package}", 'cc -shared -fPIC -o "$GUEST/lib/libcudnn.so.9" "$GUEST/cudnn.c"\n')


def _site_package(guest: PackagedGuest, package: str, form: str = "deb") -> dict[str, str]:
    guest.put(f"site/{package}.{form}", f"{package} 9.13.1.26-1\n")
    return {"package": package, "format": form, "path": str(guest.root / f"site/{package}.{form}")}


def test_locked_cudnn_is_the_sites_package_for_the_guests_toolkit_and_a_second_run_changes_nothing(
    guest: PackagedGuest,
) -> None:
    _with_cudnn(guest, 91301, "libcudnn9-cuda-12")
    packages = [
        _site_package(guest, "libcudnn9-cuda-13"), _site_package(guest, "libcudnn9-cuda-12", "rpm"),
        _site_package(guest, "libcudnn9-cuda-12"),
    ]  # fmt: skip
    first = _run(guest, cudnn="9.13.1.26", cudnn_packages=packages)
    assert guest_error_of(first, "default/train", GUEST) is None, first.output
    assert guest.installed == {"cuda-toolkit-12-8", "libcudnn9-cuda-12"}
    assert versions_of(first) == {"cuda_toolkit": "12.8", "cudnn": "9.13.1"}
    assert list((guest.root / "brought").iterdir()) == []
    again = _run(guest, name="again", cudnn="9.13.1.26", cudnn_packages=packages)
    (result,) = results_of(again, at=0.0, operation="o")
    assert (result.state, versions_of(again)["cudnn"]) == ("ok", "9.13.1")


def test_where_the_site_has_no_package_of_cudnn_the_guests_repositories_are_asked(guest: PackagedGuest) -> None:
    _with_cudnn(guest, 91301, "libcudnn9-cuda-12")
    other = [_site_package(guest, "libcudnn9-cuda-13")]
    error = _error(_run(guest, cudnn="9.13.1", cudnn_packages=other))
    assert error.code == "guest.no_package"
    assert "libcudnn9-cuda-12 9.13.1" in error.message
    guest.offers(libcudnn9_cuda_12="9.13.1.26-1")
    assert versions_of(_run(guest, name="then", cudnn="9.13.1", cudnn_packages=other))["cudnn"] == "9.13.1"


def test_a_cudnn_that_answers_otherwise_than_its_package_says_fails_the_role(guest: PackagedGuest) -> None:
    _with_cudnn(guest, 90900, "libcudnn9-cuda-12")
    guest.offers(libcudnn9_cuda_12="9.13.1.26-1")
    error = _error(_run(guest, cudnn="9.13.1"))
    assert error.code == "guest.cudnn_failed"
    assert "cuDNN 9.13.1 is installed and 9.9.0 answers" in error.message
