# SPDX-License-Identifier: Apache-2.0
"""Rolling upgrades of three lab hosts, each with a VM: of those that may move none stops, others run before and after.

On emulated hosts beside other work: fifteen minutes, five of them until the hosts are there with their VMs, and three
until they are given back.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.lab.conftest import lab
from tests.lab.drivers import PROVISIONED_WITHIN_S
from tests.lab.enrolled import MDEV, SMALLEST, Enrolled
from tests.lab.three_hosts import FIRST, NAMES, SECOND, ThreeHosts, three_hosts
from tests.lab.two_hosts import Site

pytestmark = [pytest.mark.lab]
CANARY, PERSONS, HELD = NAMES
_MIGRATABLE = """schema_version: 1
offerings:
  - {name: migratable, description: moves, kind: time_sliced, vgpu_type: GRID T4-1Q, migratable: true}
"""
_INSTALLING = "until ls -d /tmp/nvidia-installer.* >/dev/null 2>&1; do sleep 0.2; done"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeHosts]:
    with three_hosts(tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("bundles")) as made:
        yield made


def _swaps(site: ThreeHosts) -> list[str]:
    """Hosts whose driver was swapped, once for each operation that did."""
    done = site.product.json("operation", "list", "--kind", "upgrade_driver")
    return sorted(operation["subject"] for operation in done)


def test_vms_that_may_move_do_and_none_of_them_stops(site: ThreeHosts) -> None:
    product, counting, vms = site.product, Site(site.product, site.hosts), [f"live-{name}" for name in NAMES]
    product.ok("image", "add", "counting", lab("guest-image", "--counting").strip())
    (product.state / "offerings.yaml").write_text(_MIGRATABLE)
    product.ok("profile", "add", str(product.state / "offerings.yaml"))
    site.each(lambda host: ("stop-vm", f"on-{host.name}"))
    site.each(
        lambda host: (
            "create-vm", f"live-{host.name}", "--profile", "migratable", "--host", host.name, "--image", "counting",
            *SMALLEST,
        )
    )  # fmt: skip
    counted = {name: counting.count(name) for name in vms}
    product.run("doctor")  # hosts are observed with what their drivers say of the vGPUs
    before = {operation["id"] for operation in product.json("operation", "list")}
    site.begin(SECOND, "--vms", "wait", "--canary", "1", "--max-unavailable", "1")
    assert (site.ended()["state"], site.phases()) == ("done", dict.fromkeys(NAMES, "done"))
    assert site.drivers() == dict.fromkeys(NAMES, (SECOND, SECOND))
    for name in vms:
        assert counting.count(name) > counted[name]
    done = [operation["kind"] for operation in product.json("operation", "list") if operation["id"] not in before]
    assert not {"stop_vm", "start_vm", "move_vm_cold"} & set(done)
    assert done.count("move_running_vm") >= len(NAMES)
    for name in vms:
        product.ok("delete-vm", name)
    site.each(lambda host: ("start-vm", f"on-{host.name}"))


@pytest.mark.fault("F115", "F116")
def test_all_hosts_get_the_driver_over_the_servers_death_and_a_persons_cordon_stays(site: ThreeHosts) -> None:
    before, swaps = site.vms(), len(_swaps(site))
    assert {state for _, state, _ in before.values()} == {"running"}
    site.product.ok("host", "cordon", PERSONS)
    site.begin(FIRST, "--canary", "1", "--max-unavailable", "2")
    site.until(lambda phases: phases[CANARY] == "done" and "swapping" in {phases[PERSONS], phases[HELD]})
    swapping = next(name for name in (PERSONS, HELD) if site.phases()[name] == "swapping")
    site.hosts[swapping].run(_INSTALLING, limit_s=PROVISIONED_WITHIN_S)
    os.kill(site.product.serve_pid(), signal.SIGKILL)
    upgrade = site.ended()
    assert (upgrade["state"], site.phases()) == ("done", dict.fromkeys(NAMES, "done"))
    assert site.drivers() == dict.fromkeys(NAMES, (FIRST, FIRST))
    assert site.vms() == before
    assert site.cordoned() == [PERSONS]
    assert len(_swaps(site)) == swaps + len(NAMES), "no host twice"
    for name, host in site.hosts.items():
        seen = Enrolled(product=site.product, kind=MDEV, host=host, gpu="", public_key="").guest_says(f"on-{name}")
        assert MDEV.guest_pci_id in seen
    site.product.ok("host", "uncordon", PERSONS)


@pytest.mark.fault("F111")
def test_one_host_that_fails_goes_back_and_the_others_finish(site: ThreeHosts) -> None:
    before = site.vms()
    lab("fault", HELD, "0", "held", "1")
    site.begin(SECOND, "--canary", "0", "--max-unavailable", "3", "--reboot", "never")
    upgrade = site.ended()
    lab("fault", HELD, "0", "held", "0")
    assert (upgrade["state"], site.phases()) == (
        "done", {CANARY: "done", PERSONS: "done", HELD: "rolled_back"}
    )  # fmt: skip
    assert "module nvidia is in use" in next(one["why"] for one in upgrade["hosts"] if one["host"] == HELD)
    assert site.drivers() == {CANARY: (SECOND, SECOND), PERSONS: (SECOND, SECOND), HELD: (FIRST, FIRST)}
    assert site.vms() == before
    assert site.cordoned() == [HELD], "a person looks before new VMs are placed there"
    site.product.ok("host", "uncordon", HELD)
