# SPDX-License-Identifier: Apache-2.0
"""Roles are run in a VM's guest, or it is said why not; the VM stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.drivers.lock import DriverLock, Locked
from orchestrator.core.errors import Fatal, Retryable, VgpuctlError
from orchestrator.core.floating_addresses import FloatingAddress
from orchestrator.core.operation import Operation
from orchestrator.core.overlay import OvnNetwork
from orchestrator.core.tenancy.quota import Limit
from orchestrator.core.vms.network import Network
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.operations.steps.guest import AGAIN_AFTER_S, NEW_FOR_S
from orchestrator.reconcile.guests import BootingGuests
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.driver_files import deb_file, run_file
from tests.fakes.drivers import with_bundle, with_file
from tests.fakes.fake_guests import FakeGuests

CLOSED = Fatal("guest.auth_failed", "the guest does not let the site's runs in")
BOOTS = Retryable("guest.unreachable", "the guest does not answer over SSH")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        with made.store.begin() as tx:
            tx.vms.update(replace(made.services.vms.get("default", "train"), addresses=("192.0.2.7",)))
        yield made


def _guests(plane: ControlPlane) -> FakeGuests:
    assert isinstance(plane.world.guests, FakeGuests)
    return plane.world.guests


def _provisioned(plane: ControlPlane, *roles: str) -> Operation:
    started = plane.services.guests.provision("default", "train", roles or ("guest_check",))
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def _code(operation: Operation) -> object:
    return (operation.error or {}).get("code")


def _refused(plane: ControlPlane, *roles: str) -> VgpuctlError:
    with pytest.raises(VgpuctlError) as caught:
        plane.services.guests.provision("default", "train", roles)
    return caught.value


def test_a_role_is_run_its_result_is_kept_and_a_second_run_changes_nothing(plane: ControlPlane) -> None:
    first = _provisioned(plane)
    assert first.state == "done", first.error
    record = plane.services.guests.get("default", "train")
    (result,) = record.results
    assert (result.role, result.state, result.operation) == ("guest_check", "changed", first.id)
    assert record.facts.driver == "580.95.05"
    assert _provisioned(plane).state == "done"
    (result,) = plane.services.guests.get("default", "train").results
    assert result.state == "ok"
    assert plane.services.vms.get("default", "train").state == "running"


def test_the_host_key_that_a_guest_shows_first_is_asked_for_from_then_on(plane: ControlPlane) -> None:
    _provisioned(plane)
    _provisioned(plane)
    assert [guest.host_key for guest in _guests(plane).seen] == [None, *[_guests(plane).key] * 3]


def test_a_new_host_key_counts_once_somebody_says_that_it_was_meant(plane: ControlPlane) -> None:
    _provisioned(plane)
    _guests(plane).key = "ssh-ed25519 OTHER"
    plane.services.guests.provision("default", "train", ("guest_check",), new_host_key=True)
    plane.engine.drain()
    assert [guest.host_key for guest in _guests(plane).seen[2:]] == [None, "ssh-ed25519 OTHER"]


def _bring(plane: ControlPlane, *versions: str) -> None:
    for version in versions:
        with_bundle(plane, version, flavour="grid")


def test_a_guest_gets_the_newest_driver_that_its_host_takes(plane: ControlPlane) -> None:
    assert _refused(plane, "guest_driver").code == "bundle.missing"
    plane.machine(T4_HOST).driver_version = "570.172.07"
    plane.observer.observe(T4_HOST)
    _bring(plane, "535.129.03", "570.172.08", "580.95.05")
    assert _provisioned(plane, "guest_driver", "guest_check").state == "done"
    assert _guests(plane).drivers == ["570.172.08"]
    assert [one.role for one in plane.services.guests.get("default", "train").results] == [
        "guest_driver",
        "guest_check",
    ]


def test_a_driver_for_machines_that_we_have_none_of_goes_into_no_guest(plane: ControlPlane) -> None:
    with_file(plane, run_file("NVIDIA-Linux-aarch64-580.95.05-grid"))
    assert _refused(plane, "guest_driver").code == "bundle.missing"


def test_where_no_driver_goes_with_the_host_the_tables_row_is_named(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).driver_version = "570.172.07"
    plane.observer.observe(T4_HOST)
    _bring(plane, "580.95.05")
    error = _refused(plane, "guest_driver")
    assert error.code == "vm.driver_forbidden"
    assert "driver_matrix.csv, row" in error.message


def test_a_locked_toolkit_goes_to_the_guest_and_its_version_is_kept(plane: ControlPlane) -> None:
    plane.services.driver_locks.apply(DriverLock(site=(Locked(component="cuda", version="12.8 Update 1"),)))
    assert _provisioned(plane, "guest_cuda").state == "done"
    assert _guests(plane).toolkits == ["12.8 Update 1"]
    assert _provisioned(plane, "guest_check").state == "done"
    assert plane.services.guests.get("default", "train").facts.driver == "580.95.05"
    assert _provisioned(plane, "guest_cuda").state == "done"
    facts = plane.services.guests.get("default", "train").facts
    assert (facts.driver, facts.cuda_toolkit) == ("580.95.05", "12.8")


def test_locked_cudnn_goes_to_the_guest_with_the_sites_packages_of_that_version(plane: ControlPlane) -> None:
    plane.services.driver_locks.apply(DriverLock(site=(Locked(component="cudnn", version="9.13.1.26"),)))
    assert _provisioned(plane, "guest_cuda").state == "done"
    kept = {version: with_file(plane, deb_file("libcudnn9-cuda-12", version)) for version in ("9.13.1.26", "9.9.0.52")}
    assert _provisioned(plane, "guest_cuda").state == "done"
    wanted = _guests(plane).wanted
    assert [one.cudnn for one in wanted] == ["9.13.1.26", "9.13.1.26"]
    assert [[package.sha256 for package in one.cudnn_packages] for one in wanted] == [[], [kept["9.13.1.26"].sha256]]
    assert [package.package for package in wanted[1].cudnn_packages] == ["libcudnn9-cuda-12"]


def test_a_locked_toolkit_that_needs_a_newer_driver_than_the_guest_gets_is_refused_by_row(plane: ControlPlane) -> None:
    plane.services.driver_locks.apply(DriverLock(site=(Locked(component="cuda", version="13.0 GA"),)))
    plane.machine(T4_HOST).driver_version = "570.172.07"
    plane.observer.observe(T4_HOST)
    _bring(plane, "570.172.08")
    error = _refused(plane, "guest_driver", "guest_cuda")
    assert error.code == "guest.cuda_forbidden"
    assert "row cuda_minor_compat 13.x" in error.message
    assert not _guests(plane).seen


def test_a_guest_that_still_boots_is_waited_for(plane: ControlPlane) -> None:
    _guests(plane).answers = [BOOTS, CLOSED, BOOTS, None]
    assert _provisioned(plane).state == "done"


def test_a_guest_that_still_boots_holds_no_worker_and_is_tried_again_after_a_pause(plane: ControlPlane) -> None:
    _guests(plane).answers = [BOOTS, None]
    operation = str(plane.services.guests.provision("default", "train", ("guest_check",)).operation)
    plane.engine.waiting.clear()
    Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
    guests = BootingGuests(plane.store, plane.hosts, plane.world.clock, plane.engine, limit_s=1.0)
    for pause_s in (0.0, AGAIN_AFTER_S - 1.0):
        plane.world.clock.sleep(pause_s)
        guests.ask(T4_HOST, guests.waiting()[T4_HOST])
        assert plane.services.operations.get(operation).guest_wait == "waiting"
    plane.world.clock.sleep(1.0)
    guests.ask(T4_HOST, guests.waiting()[T4_HOST])
    assert plane.services.operations.get(operation).guest_wait == "tried"
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "done"


def test_one_that_never_lets_us_in_ends_the_operation_with_the_reason(plane: ControlPlane) -> None:
    _guests(plane).answers = [CLOSED]
    operation = _provisioned(plane)
    assert (operation.state, _code(operation)) == ("undone", "guest.auth_failed")
    assert plane.services.vms.get("default", "train").state == "running"


def test_an_old_guest_that_lets_nobody_in_is_told_of_at_once(plane: ControlPlane) -> None:
    plane.world.clock.sleep(NEW_FOR_S + 1)
    _guests(plane).answers = [CLOSED, None]
    assert _code(_provisioned(plane)) == "guest.auth_failed"


def test_roles_of_a_new_vm_wait_for_its_guest_however_long_the_vm_itself_took(plane: ControlPlane) -> None:
    started = plane.services.vms.create(replace(create_vm(name="slow"), provision=("guest_check",)))
    plane.world.clock.sleep(NEW_FOR_S + 1)
    _guests(plane).answers = [CLOSED, None]
    plane.engine.drain()
    run = plane.services.operations.get(str(started.provisioning))
    assert (run.state, run.error) == ("done", None)


def test_what_a_role_did_before_it_failed_is_kept_and_it_can_be_run_again(plane: ControlPlane) -> None:
    _guests(plane).fails["guest_check"] = Fatal("guest.check_failed", "CUDA has no device")
    operation = _provisioned(plane)
    assert (operation.state, _code(operation)) == ("undone", "guest.check_failed")
    (result,) = plane.services.guests.get("default", "train").results
    assert (result.state, result.failed_task) == ("failed", "guest_check")
    _guests(plane).fails.clear()
    assert _provisioned(plane).state == "done"


def test_a_role_that_does_not_exist_is_refused_with_the_one_that_was_meant(plane: ControlPlane) -> None:
    error = _refused(plane, "guest_chek")
    assert (error.code, error.exit_code, error.hint) == (
        "guest.role_unknown",
        2,
        "did you mean guest_check, guest_cuda, guest_licence?",
    )
    assert _refused(plane).code == "guest.no_roles"


def test_a_vm_that_is_stopped_or_has_no_address_or_is_busy_is_refused(plane: ControlPlane) -> None:
    plane.services.guests.provision("default", "train", ("guest_check",))
    assert _refused(plane, "guest_check").code == "vm.busy"
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    with plane.store.begin() as tx:
        tx.vms.update(replace(vm, addresses=()))
        tx.networks.add(Network(name="outside", overlay=OvnNetwork(id="outside", subnets=("192.0.2.0/24",))))
    assert _refused(plane, "guest_check").code == "vm.no_address"
    led = FloatingAddress(address="192.0.2.107", network="outside", tenant="default", vm=vm.id)
    with plane.store.begin() as tx:
        tx.floating_addresses.add(led)
    plane.services.guests.provision("default", "train", ("guest_check",))
    plane.engine.drain()
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    error = _refused(plane, "guest_check")
    assert (error.code, error.hint) == ("vm.not_running", "'vgpuctl start-vm train' starts it")


def test_deleting_a_vm_ends_the_run_in_its_guest_and_forgets_what_was_put_there(plane: ControlPlane) -> None:
    _provisioned(plane)
    vm = plane.services.vms.get("default", "train")
    begun = plane.services.guests.provision("default", "train", ("guest_check",))
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert _code(plane.services.operations.get(str(begun.operation))) == "operation.cancelled"
    with plane.store.read() as tx:
        assert tx.guests.get(vm.id).host_key is None


TOKEN = "eyJhbGciOi.TOKEN"


def _licensed(plane: ControlPlane, *, token: str | None = TOKEN) -> Operation:
    secrets = {} if token is None else {"licence_token": token}
    settings = {"licence_feature": "compute"}
    service = plane.services.guests
    started = service.provision("default", "train", ("guest_licence",), settings=settings, secrets=secrets)
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def _secrets(plane: ControlPlane) -> tuple[str, ...]:
    with plane.store.read() as tx:
        return tuple(one for one in tx.secrets.ids() if one.startswith("guest."))


def test_a_token_reaches_the_run_and_is_forgotten_when_it_is_over(plane: ControlPlane) -> None:
    operation = _licensed(plane)
    assert operation.state == "done", operation.error
    (wanted,) = _guests(plane).wanted
    assert (wanted.secrets, wanted.settings) == ({"licence_token": TOKEN}, {"licence_feature": "compute"})
    assert _secrets(plane) == ()
    assert TOKEN not in repr((operation, wanted, plane.services.tenancy.audit.list(limit=100)))


def test_a_token_is_forgotten_with_a_run_that_fails_is_cancelled_or_loses_its_vm(plane: ControlPlane) -> None:
    _guests(plane).fails["guest_licence"] = Fatal("guest.service_failed", "there is none")
    assert _licensed(plane).state == "undone"
    assert _secrets(plane) == ()
    plane.services.guests.provision("default", "train", ("guest_licence",), secrets={"licence_token": TOKEN})
    assert len(_secrets(plane)) == 1
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert _secrets(plane) == ()


def _begun_with_token(plane: ControlPlane) -> str:
    secrets = {"licence_token": TOKEN}
    begun = plane.services.guests.provision("default", "train", ("guest_licence",), secrets=secrets)
    return str(begun.operation)


def test_a_token_is_forgotten_with_a_run_that_is_cancelled_before_its_first_step(plane: ControlPlane) -> None:
    begun = _begun_with_token(plane)
    plane.services.operations.cancel(begun)
    plane.engine.drain()
    assert plane.services.operations.get(begun).state == "undone"
    assert (_secrets(plane), _guests(plane).seen) == ((), [])


def test_a_token_is_forgotten_with_a_run_that_waited_for_its_host_and_was_abandoned(plane: ControlPlane) -> None:
    begun = _begun_with_token(plane)
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="unreachable"))
    plane.engine.drain()
    assert plane.services.operations.get(begun).host_wait is not None
    assert len(_secrets(plane)) == 1
    plane.services.operations.abandon(begun)
    assert _secrets(plane) == ()


def test_a_token_is_forgotten_with_a_run_that_got_stuck_and_was_abandoned(plane: ControlPlane) -> None:
    begun = _begun_with_token(plane)
    with plane.store.begin() as tx:
        tx.operations.update(replace(tx.operations.get(begun).operation, state="stuck"))
    plane.services.operations.abandon(begun)
    assert _secrets(plane) == ()


def test_a_run_that_its_controller_leaves_has_its_token_when_it_goes_on(plane: ControlPlane) -> None:
    _guests(plane).fails["guest_licence"] = Retryable("guest.package_lock", "apt runs there")
    _licensed(plane)
    assert [one.secrets for one in _guests(plane).wanted] == [{"licence_token": TOKEN}] * len(_guests(plane).wanted)
    assert len(_guests(plane).wanted) > 1


def test_a_guest_that_holds_its_token_is_not_asked_for_it_again(plane: ControlPlane) -> None:
    assert _refused(plane, "guest_licence").code == "guest.secret_missing"
    assert _licensed(plane).state == "done"
    assert _licensed(plane, token=None).state == "done"
    assert [dict(one.secrets) for one in _guests(plane).wanted] == [{"licence_token": TOKEN}, {}]


def test_a_node_of_kubernetes_is_told_what_its_vm_is_now_and_other_roles_are_not(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.quotas.put(Limit(tenant="default", resource="devices", amount=8))
    secrets = {"k8s_node_bootstrap": "kind: Config", "k8s_node_kubelet_config": "kind: KubeletConfiguration"}
    plane.services.guests.provision("default", "train", ("guest_k8s_node",), secrets=secrets)
    plane.engine.drain()
    _provisioned(plane)
    node, other = _guests(plane).wanted
    assert node.labels["topology.kubernetes.io/zone"] == plane.store.site
    assert (node.labels["vgpuctl/gpu-model"], node.labels["vgpuctl/quota-devices"]) == ("T4", "8")
    assert other.labels == {}
