# SPDX-License-Identifier: Apache-2.0
"""A GPU of a lab host falls ill: it is closed within a minute, the VM on it runs on, a word brings it back."""

from __future__ import annotations

import time
from typing import Final

import pytest

from tests.lab.conftest import lab
from tests.lab.enrolled import SMALL, Enrolled

pytestmark = pytest.mark.lab


SENSED: Final = {
    "memory-uncorrectable_errors": "ecc 1\necc_uncorrected 3",
    "memory-remap_pending": "remap_pending 1",
    "memory-remap_failed": "remap_failed 1",
    "recovery-gpu_reset": "recovery_action 1",
    "recovery-node_reboot": "recovery_action 2",
    "pcie-narrow": "pcie_width 8",
    "fabric-failed": "fabric_state 3\nfabric_status 999",
    "fabric-degraded_bandwidth": "fabric_state 3\nfabric_health 1",
}
"""Signal → what the lab's driver then tells through NVML."""
_AER: Final = "nvidia {gpu}: AER: PCIe Bus Error: severity=Uncorrectable ({severity}), type=Transaction Layer"
LOGGED: Final = {"aer-fatal": "Fatal", "aer-nonfatal": "Non-Fatal"}
"""Signal → severity of the kernel's line."""


def _state(enrolled: Enrolled, gpu: str) -> str:
    return str(enrolled.product.json("health", "explain", enrolled.name, gpu)["state"])


@pytest.mark.fault("F84")
@pytest.mark.parametrize("enrolment", ["t4"], indirect=True)
def test_an_xid_closes_its_gpu_within_a_minute_and_return_opens_it_beside_a_vm_that_runs(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("beside"))
    started = enrolled.running_since("beside")
    gpu = product.json("show-vm", "beside")["devices"][0]["gpu"]
    lab("fault", enrolled.name, "0", "xid", "45", "of a program")
    lab("fault", enrolled.name, "0", "xid", "95", "Uncontained ECC error")
    deadline = time.monotonic() + 60
    while _state(enrolled, gpu) != "unfit":
        assert time.monotonic() < deadline, product.run("health", "show").out
        time.sleep(2)
    product.refused(8, *enrolled.request("another", "--gpu", gpu))
    assert enrolled.running_since("beside") == started, "the VM beside runs on"

    product.ok("health", "return", enrolled.name, gpu, "--reason", "it was a test")
    assert _state(enrolled, gpu) == "watch"
    product.run("doctor")
    assert _state(enrolled, gpu) == "watch", "what was told before counts no more"
    product.ok(*enrolled.request("another", "--gpu", gpu))
    product.ok("delete-vm", "another", "beside", "--yes")
    enrolled.shell(f"echo vgpuctl: GPU {gpu} was reset >/dev/kmsg")
    assert product.run("doctor", "-o", "json").json() == []


@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
def test_an_unfit_gpu_is_reset_once_it_is_empty_and_on_watch_with_its_functions_as_before(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("ill"))
    gpu = product.json("show-vm", "ill")["devices"][0]["gpu"]
    functions = product.json("gpu", "show", enrolled.name, gpu)["virtual_functions"]
    lab("fault", enrolled.name, "0", "xid", "95", "Uncontained ECC error")
    deadline = time.monotonic() + 60
    while _state(enrolled, gpu) != "unfit":
        assert time.monotonic() < deadline, product.run("health", "show").out
        time.sleep(2)
    refused = product.refused(5, "health", "reset", enrolled.name, gpu)
    assert "default/ill" in refused.err
    product.ok("delete-vm", "ill", "--yes")
    product.ok("health", "reset", enrolled.name, gpu)
    assert _state(enrolled, gpu) == "watch"
    assert product.json("gpu", "show", enrolled.name, gpu)["virtual_functions"] == functions
    product.ok(*enrolled.request("again", "--gpu", gpu))
    product.ok("delete-vm", "again", "--yes")


@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
def test_each_signal_brings_its_gpu_into_its_state_within_a_minute_and_lets_it_out_beside_a_vm_that_runs(
    enrolled: Enrolled,
) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("beside"))
    started = enrolled.running_since("beside")
    gpu = product.json("show-vm", "beside")["devices"][0]["gpu"]
    for signal in (*SENSED, *LOGGED):
        if signal in SENSED:
            lab("fault", enrolled.name, "0", "sensors", SENSED[signal])
        else:
            enrolled.shell(f"echo '{_AER.format(gpu=gpu, severity=LOGGED[signal])}' >/dev/kmsg")
        deadline = time.monotonic() + 60
        while True:
            said = product.json("health", "explain", enrolled.name, gpu)
            brings = {told["name"]: told["state"] for told in said["signals"]}
            if signal in brings and said["state"] == brings[signal]:
                break
            assert time.monotonic() < deadline, f"{signal}: {said}"
            time.sleep(2)
        explained = product.run("explain", "--profile", enrolled.profile, *SMALL, "--gpu", gpu)
        assert explained.code == (8 if said["state"] == "unfit" else 0), explained.out
        if signal in SENSED:
            lab("fault", enrolled.name, "0", "sensors", "")
        else:
            enrolled.shell(f"echo vgpuctl: GPU {gpu} was reset >/dev/kmsg")
        product.run("doctor")
        over = product.json("health", "explain", enrolled.name, gpu)
        assert (over["state"], over["signals"]) == ("watch", []), f"{signal}: {over}"
        product.ok("health", "return", enrolled.name, gpu, "--reason", "it was a test")  # else three close it for good
    assert enrolled.running_since("beside") == started, "the VM beside runs on"


@pytest.mark.parametrize("enrolment", ["l40s"], indirect=True)
def test_a_fatal_error_of_a_virtual_function_closes_that_one_alone(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("ill"))
    device = product.json("show-vm", "ill")["devices"][0]
    gpu, function = device["gpu"], device["parent"]
    enrolled.shell(f"echo '{_AER.format(gpu=function, severity='Fatal')}' >/dev/kmsg")
    deadline = time.monotonic() + 60
    while _state(enrolled, function) != "unfit":
        assert time.monotonic() < deadline, product.run("health", "show").out
        time.sleep(2)
    assert _state(enrolled, gpu) == "healthy"
    product.ok(*enrolled.request("beside", "--gpu", gpu))
    product.ok("stop-vm", "ill")
    product.ok("start-vm", "ill")
    functions = {product.json("show-vm", name)["devices"][0]["parent"] for name in ("ill", "beside")}
    assert len(functions - {function}) == 2, "each has another one"
    product.ok("delete-vm", "ill", "beside", "--yes")
    enrolled.shell(f"echo vgpuctl: GPU {gpu} was reset >/dev/kmsg")
    product.run("doctor")
    assert _state(enrolled, function) == "watch"
    product.ok("health", "return", enrolled.name, function, "--reason", "it was a test")
