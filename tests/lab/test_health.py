# SPDX-License-Identifier: Apache-2.0
"""A GPU of a lab host falls ill: it is closed within a minute, the VM on it runs on, a word brings it back."""

from __future__ import annotations

import time

import pytest

from tests.lab.conftest import lab
from tests.lab.enrolled import Enrolled

pytestmark = pytest.mark.lab


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
