# SPDX-License-Identifier: Apache-2.0
"""Pages for Prometheus and answers about readings, over a control plane whose hosts send frames."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from orchestrator.catalogue.metric_names import LIBVIRT_NAMES, dcgm_names, metric_name
from orchestrator.core.controller import Door
from orchestrator.core.readings.frame import HostFrame, Reading, frame_from_dict, frame_to_dict
from orchestrator.core.readings.quantities import BY_NAME
from orchestrator.core.readings.tunnels import tunnel_of
from orchestrator.core.tenancy.access import EVERYWHERE, Role
from orchestrator.core.tenancy.tenant import digest_of
from orchestrator.core.vms.vm import Vm
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import snapshot_of
from tests.fakes.frames import FACTS, GPU_NUMBERS, frame_of, gpu_reading, vgpu_reading, vm_reading

OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}
NOBODY = 65534
PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
Sample = tuple[str, frozenset[tuple[str, str]]]
TUNNELS = (tunnel_of("192.0.2.2", 3, [0.0002, 0.0004]), tunnel_of("192.0.2.3", 3, []))


def families_of(page: str) -> list[Metric]:
    parse: Callable[[str], Iterable[Metric]] = text_string_to_metric_families
    return list(parse(page))


class Scene:
    """A VM of the tenant ``default`` and one of ``other`` on one host, which has sent a frame."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        plane.add_host(T4_HOST)
        plane.add_host(L40S_HOST)
        plane.services.tenancy.tenants.create("other")
        for tenant in ("default", "other"):
            plane.services.vms.create(replace(create_vm(f"of-{tenant}"), tenant=tenant, host=T4_HOST))
            plane.engine.drain()
        plane.reconciler.round()
        self.vm, self.other = self.find("default"), self.find("other")
        self.client = TestClient(real_app(plane))
        self.stranger = TestClient(real_app(plane, uid=NOBODY))
        frame = frame_of(snapshot_of(plane.machine(T4_HOST)), self.vm, self.other, taken_at=plane.world.clock.now())
        self.frame = replace(frame, tunnels=TUNNELS)
        self.send(self.frame)

    def find(self, tenant: str) -> Vm:
        return self.plane.services.vms.get(tenant, f"of-{tenant}")

    def send(self, frame: HostFrame, host: str = T4_HOST) -> None:
        self.plane.services.readings.kept.receive(host, frame)

    def gpu(self, number: int = 0) -> str:
        return self.frame.readings[number].id

    def page(self, path: str, client: TestClient | None = None, **headers: str) -> str:
        answer = (client or self.client).get(f"/v1/metrics/{path}", headers={**OPENMETRICS, **headers})
        assert answer.status_code == 200, answer.text
        return answer.text

    def samples(self, path: str, **headers: str) -> dict[Sample, float]:
        families = families_of(self.page(path, None, **headers))
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def answer(self, path: str) -> Any:
        answer = self.client.get(f"/v1/readings/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def token(self, tenant: str, role: Role = "read-only") -> dict[str, str]:
        return {"authorization": f"Bearer {self.plane.services.tenancy.tokens.create(tenant, role, None)[1]}"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    plane = control_plane(tmp_path)
    yield Scene(plane)
    plane.reconciler.close()
    plane.store.close()


def test_each_number_of_a_frame_is_on_the_page_of_its_host(scene: Scene) -> None:
    samples = scene.samples(f"hosts/{T4_HOST}")
    for reading in scene.frame.readings:
        for quantity, label, number in reading.values():
            own = {(quantity.label, label)} if label else set()
            names = {("gpu", reading.id), ("vgpu", reading.id), ("vm", reading.id)}
            (value,) = (
                value
                for (name, labels), value in samples.items()
                if name == metric_name(quantity.name) and own <= labels and names & labels
            )
            assert value == number, quantity.name
    base = {("site", "site"), ("host", T4_HOST)}
    assert all(base <= labels for _, labels in samples)


def test_tunnels_are_on_the_page_of_their_host_and_in_its_readings(scene: Scene) -> None:
    page = scene.samples(f"hosts/{T4_HOST}")
    told = {
        (name, dict(labels)["remote"], dict(labels).get("of")): value
        for (name, labels), value in page.items()
        if "_tunnel_" in name
    }
    assert told == {
        ("vgpuctl_host_tunnel_seconds", "192.0.2.2", "min"): 0.0002,
        ("vgpuctl_host_tunnel_seconds", "192.0.2.2", "mean"): pytest.approx(0.0003),
        ("vgpuctl_host_tunnel_lost_ratio", "192.0.2.2", None): pytest.approx(1 / 3),
        ("vgpuctl_host_tunnel_lost_ratio", "192.0.2.3", None): 1.0,
    }
    assert scene.answer(f"hosts/{T4_HOST}")["tunnels"][1] == {
        "address": "192.0.2.3", "sent": 3, "lost": 3, "min_s": None, "avg_s": None,
    }  # fmt: skip


def test_a_vm_is_named_by_one_series_that_others_are_joined_to(scene: Scene) -> None:
    samples = scene.samples(f"hosts/{T4_HOST}")
    told = [dict(labels) for (name, labels) in samples if name == "vgpuctl_vm_info"]
    assert {(one["vm"], one["name"], one["tenant"], one["offering"]) for one in told} == {
        (vm.id, vm.spec.name, vm.spec.tenant, vm.spec.profile) for vm in (scene.vm, scene.other)
    }
    assert not [name for name, labels in samples if name != "vgpuctl_vm_info" and "name" in dict(labels)]


def test_a_host_that_is_silent_has_no_old_number(scene: Scene) -> None:
    scene.plane.world.clock.sleep(31)
    samples = scene.samples(f"hosts/{T4_HOST}")
    names = {name for name, _ in samples}
    assert names == {"vgpuctl_host_readings_present", "vgpuctl_host_gpus", "vgpuctl_vm_info"}
    assert {value for (name, _), value in samples.items() if name == "vgpuctl_host_readings_present"} == {0.0}
    told = scene.answer(f"hosts/{T4_HOST}")
    assert (told["age_s"], told["readings"]) == (None, [])


def test_a_tenant_sees_its_own_vms_and_neither_host_gpu_nor_neighbour(scene: Scene) -> None:
    page = scene.page("tenants/default", scene.stranger, **scene.token("default"))
    for hidden in (scene.other.id, "of-other", T4_HOST, scene.gpu(), "0000:41", "Tesla", scene.vm.devices[0].name):
        assert hidden not in page, hidden
    families = families_of(page)
    assert {sample.labels["vm"] for family in families for sample in family.samples} == {scene.vm.id}
    assert {"vgpuctl_vgpu_sm_ratio", "vgpuctl_vm_info", "vgpuctl_vgpu_info"} <= {
        sample.name for family in families for sample in family.samples
    }


@pytest.mark.parametrize("path", ["metrics/tenants/other", "readings/vms/of-other?tenant=other"])
def test_a_tenant_does_not_learn_whether_another_one_is_there(scene: Scene, path: str) -> None:
    answer = scene.stranger.get(f"/v1/{path}", headers=scene.token("default"))
    absent = scene.stranger.get(f"/v1/{path.replace('other', 'absent')}", headers=scene.token("default"))
    assert (answer.status_code, answer.json()["code"]) == (404, "tenant.unknown")
    assert absent.json()["code"] == "tenant.unknown"


@pytest.mark.parametrize("path", [f"metrics/hosts/{T4_HOST}", f"metrics/dcgm/{T4_HOST}", f"readings/hosts/{T4_HOST}"])
def test_hosts_are_for_who_watches_the_pool(scene: Scene, path: str) -> None:
    assert scene.stranger.get(f"/v1/{path}", headers=scene.token("default")).status_code == 403
    assert scene.stranger.get(f"/v1/{path}", headers=scene.token(EVERYWHERE)).status_code == 200


def test_what_a_host_says_of_others_vms_and_gpus_is_left_out(scene: Scene) -> None:
    """A host that lies names a VM that is elsewhere, and a GPU that it does not have."""
    lies = (vm_reading(scene.vm.id), gpu_reading("GPU-invented"), vgpu_reading("f0f0", "GPU-invented", scene.vm.id))
    snapshot = snapshot_of(scene.plane.machine(L40S_HOST))
    borrowed = vgpu_reading("e0e0", snapshot.gpus[0].uuid, scene.vm.id)
    scene.send(HostFrame(0.0, (*lies, borrowed)), L40S_HOST)
    readings = scene.answer(f"hosts/{L40S_HOST}")["readings"]
    assert [(item["kind"], item["id"], item["vm"]) for item in readings if item["values"]] == [("vgpu", "e0e0", None)]
    assert "e0e0" not in scene.page("tenants/default")
    assert scene.answer("vms/of-default")["readings"][0]["values"]
    assert scene.page(f"hosts/{T4_HOST}").count("vgpuctl_vgpu_sm_ratio{") == 2


def test_a_gpu_of_which_nothing_is_sent_is_said_to_be_silent(scene: Scene) -> None:
    scene.send(
        HostFrame(
            0.0, (gpu_reading(scene.gpu()), gpu_reading(scene.gpu(1), {("gpu_xid_total", "79"): 1.0}, silent="hangs"))
        )
    )
    states = {
        (dict(labels)["gpu"], dict(labels)["state"])
        for (name, labels), value in scene.samples(f"hosts/{T4_HOST}").items()
        if name == "vgpuctl_gpu_readings" and value == 1
    }
    assert states == {(scene.gpu(), "read"), (scene.gpu(1), "silent")}
    scene.send(HostFrame(0.0, (gpu_reading(scene.gpu()),)))
    silent = scene.answer(f"hosts/{T4_HOST}")["readings"][1]
    assert (silent["id"], silent["silent"]) == (scene.gpu(1), "the host sends nothing of it")


def test_a_vgpu_of_which_nothing_is_sent_is_counted(scene: Scene) -> None:
    def unread() -> dict[str, float]:
        page = scene.samples(f"hosts/{T4_HOST}").items()
        return {
            dict(labels)["vm"]: value for (name, labels), value in page if name == "vgpuctl_vm_vgpus_without_readings"
        }

    assert unread() == {scene.vm.id: 0, scene.other.id: 0}
    scene.send(replace(scene.frame, readings=tuple(item for item in scene.frame.readings if item.vm != scene.vm.id)))
    assert unread() == {scene.vm.id: 1, scene.other.id: 0}
    scene.plane.services.vms.stop("default", scene.vm.spec.name)
    scene.plane.engine.drain()
    assert unread() == {scene.other.id: 0}


def test_text_of_a_host_cannot_add_lines_or_labels(scene: Scene) -> None:
    evil = 'x"} 1\nvgpuctl_planted{a="\\'
    reading = replace(gpu_reading(scene.gpu()), facts={**FACTS, "driver_version": evil})
    scene.send(frame_from_dict(json.loads(json.dumps(frame_to_dict(HostFrame(0.0, (reading,)))))))
    page = scene.page(f"hosts/{T4_HOST}")
    assert "\nvgpuctl_planted" not in page
    (info,) = (f for f in families_of(page) if f.name == "vgpuctl_gpu")
    assert info.samples[0].labels["driver_version"].startswith('x"} 1')
    unread = replace(gpu_reading(scene.gpu()), facts={**FACTS, "driver_version": evil})
    scene.send(HostFrame(0.0, (unread,)))
    assert "\nvgpuctl_planted" not in scene.page(f"hosts/{T4_HOST}")


def test_clocks_of_next_year_are_told_and_change_no_number(scene: Scene) -> None:
    year = 365 * 86400.0
    scene.send(replace(scene.frame, taken_at=scene.plane.world.clock.now() + year))
    told = scene.answer(f"hosts/{T4_HOST}")
    assert told["clock_ahead_s"] == pytest.approx(year, abs=1)
    assert told["age_s"] < 1
    assert told["readings"][0]["values"][0] == {"quantity": "gpu_utilization_ratio", "label": "", "number": 0.37}


def test_only_a_controller_is_told_what_this_one_hears(scene: Scene) -> None:
    door = Door(name="other-1", address="other.test:8443", certificate="0" * 64, credential=digest_of("shown"))
    with scene.plane.store.begin() as tx:
        tx.controllers.put_door(door)
    body = {"hosts": [T4_HOST, L40S_HOST, "nowhere"], "moments": 1}

    def told(authorization: str) -> Any:
        headers = {"authorization": authorization}
        answer = scene.stranger.post("/controllers/readings", json=body, headers=headers)
        return answer.json() if answer.status_code == 200 else answer.json()["code"]

    for shown in ("", "Bearer shown", "Controller other-1", "Controller other-1 x", "Controller other-2 shown"):
        assert told(shown) == "controller.unknown", shown
    assert set(told("Controller other-1 shown")) == {T4_HOST}, "of what it does not hear it says nothing"


def test_lists_are_for_whom_their_things_are(scene: Scene) -> None:
    for noun in ("hosts", "gpus", "vms"):
        assert scene.client.get(f"/v1/readings/{noun}").json(), noun
        assert scene.stranger.get(f"/v1/readings/{noun}").status_code == 403, noun
    names = [row["name"] for row in scene.client.get("/v1/readings/vms?tenant=other").json()]
    assert names == ["other/of-other"]
    assert scene.client.get("/v1/readings/hosts?sort=-use&after=WyJ0NCJd").json()["code"] == "request.cursor"
    pages = [scene.client.get("/v1/readings/vms?limit=1").json()[0]["name"]]
    following = scene.client.get("/v1/readings/vms?limit=1").links["next"]["url"]
    pages.append(scene.client.get(following).json()[0]["name"])
    assert pages == ["default/of-default", "other/of-other"]


def test_history_has_what_is_charted_and_only_if_it_is_asked_for(scene: Scene) -> None:
    scene.plane.world.clock.sleep(10)
    scene.send(scene.frame)
    gpu = scene.answer(f"hosts/{T4_HOST}?history=true")["readings"][0]
    charted = {name for name, _ in GPU_NUMBERS if BY_NAME[name].charted}
    assert {series["quantity"] for series in gpu["history"]["series"]} == charted
    assert len(gpu["history"]["ages_s"]) == 2
    vm = scene.answer("vms/of-default?history=true")["readings"]
    assert all(len(series["numbers"]) == 2 for item in vm for series in item["history"]["series"])
    assert scene.answer(f"hosts/{T4_HOST}")["readings"][0]["history"] is None


def test_every_metric_that_is_no_quantity_is_in_the_reference(scene: Scene) -> None:
    of_quantities = {metric_name(name) for name in BY_NAME}
    names = {name for name, _ in scene.samples(f"hosts/{T4_HOST}")} - of_quantities
    reference = PAGE.read_text().partition("\n## Of hosts and VMs\n")[2].partition("\n## ")[0]
    written = set(re.findall(r"`(vgpuctl_[a-z_]+[a-z])(?=[`{])", reference))
    assert names == written


def test_dcgms_names_have_dcgms_units(scene: Scene) -> None:
    samples = scene.samples(f"dcgm/{T4_HOST}")
    first = {name: value for (name, labels), value in samples.items() if ("UUID", scene.gpu()) in labels}
    assert first["DCGM_FI_DEV_GPU_UTIL"] == pytest.approx(37)
    assert first["DCGM_FI_DEV_FB_USED"] == pytest.approx(2048)
    assert first["DCGM_FI_DEV_SM_CLOCK"] == pytest.approx(1590)
    assert first["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == pytest.approx(123456000)
    labels = dict(next(labels for (_, labels) in samples if ("UUID", scene.gpu()) in labels))
    assert (labels["pci_bus_id"], labels["device"], labels["hostname"]) == ("00000000:41:00.0", "nvidia0", T4_HOST)
    renamed = {name for name, _ in scene.samples(f"dcgm/{T4_HOST}?names=4.6")}
    assert {"DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_BOARD_POWER_WATTS"} <= renamed
    assert "DCGM_FI_DEV_POWER_USAGE" not in renamed


def test_tables_of_others_names_name_quantities_and_their_labels() -> None:
    for row in dcgm_names():
        assert BY_NAME[row.quantity].has_label(row.label), row.quantity
    assert LIBVIRT_NAMES.keys() <= BY_NAME.keys()
    assert len(set(LIBVIRT_NAMES.values())) == len(LIBVIRT_NAMES)


def test_targets_are_all_hosts_or_the_tenants_of_who_asks(scene: Scene) -> None:
    def paths(headers: dict[str, str], query: str = "") -> list[str]:
        answer = scene.stranger.get(f"/v1/metrics/targets{query}", headers=headers)
        assert answer.headers["content-type"] == "application/json"
        assert {target for entry in answer.json() for target in entry["targets"]} <= {"testserver"}
        return [entry["labels"]["__metrics_path__"] for entry in answer.json()]

    pool = scene.token(EVERYWHERE)
    assert paths(pool) == [f"/v1/metrics/hosts/{name}" for name in (L40S_HOST, T4_HOST)]
    assert paths(pool, "?pages=dcgm") == [f"/v1/metrics/dcgm/{name}" for name in (L40S_HOST, T4_HOST)]
    assert paths(scene.token("default")) == ["/v1/metrics/tenants/default"]
    for path in paths(pool) + paths(pool, "?tenant=other"):
        assert scene.stranger.get(path, headers=pool).status_code == 200


def test_a_host_that_was_given_up_is_no_target(scene: Scene) -> None:
    with scene.plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(L40S_HOST), state="forgotten"))
    (target,) = scene.stranger.get("/v1/metrics/targets", headers=scene.token(EVERYWHERE)).json()
    assert target["labels"]["host"] == T4_HOST


def test_there_are_no_targets_without_hosts(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    assert TestClient(real_app(plane)).get("/v1/metrics/targets").json() == []
    plane.store.close()


def test_a_million_numbers_of_a_host_become_a_bounded_page(scene: Scene) -> None:
    many = {("gpu_xid_total", str(number)): 1.0 for number in range(1, 1000)}
    gpu = Reading("gpu", scene.gpu(), tuple(many), gpu_reading(scene.gpu(), many).numbers)
    readings = [vm_reading(f"{number:032x}") for number in range(2000)]
    vgpus = [vgpu_reading(f"v{number}", "GPU-invented", "") for number in range(2000)]
    scene.send(HostFrame(0.0, (gpu, *readings, *vgpus)))
    assert len(scene.page(f"hosts/{T4_HOST}").splitlines()) < 1100


@pytest.mark.parametrize("path", [f"hosts/{T4_HOST}", "tenants/default"])
def test_promtool_has_nothing_to_say(scene: Scene, path: str) -> None:
    page = scene.client.get(f"/v1/metrics/{path}").text
    judged = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True, check=False)
    assert (judged.returncode, judged.stdout, judged.stderr) == (0, "", "")
