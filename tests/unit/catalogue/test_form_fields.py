# SPDX-License-Identifier: Apache-2.0
"""A misspelt field of any file is answered with the field that was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from orchestrator.catalogue.driver_lock_file import DriverLockForm, read_lock
from orchestrator.catalogue.manifest_file import read_manifest
from orchestrator.catalogue.manifest_forms import ManifestForm
from orchestrator.catalogue.mig_file import MigFileForm, read_mig_config
from orchestrator.catalogue.offering_files import load_offerings
from orchestrator.catalogue.offering_schema import OfferingFileForm
from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.catalogue.tables import nearest_field
from orchestrator.core.errors import InvalidInput
from orchestrator.server.settings import load_settings
from orchestrator.simulate_placement.fleet_file import HostGroup, read_groups

HERE = Path("wanted.yaml")
OFFERING = {"name": "a", "kind": "time_sliced", "vgpu_type": "GRID T4-4Q"}
VM = "schema_version: 1\nvms:\n  - {name: a, profile: p, image: i, "
MANIFEST = {
    f"{VM} lables: {{a: b}}}}\n": "vms.0.lables: there is no such field; did you mean labels?",
    f"{VM} memry: 4GiB}}\n": "vms.0.memry: there is no such field; did you mean memory?",
    f"{VM} owner: x}}\n": "vms.0.owner: there is no such field, got 'x'",
    "schema_version: 1\nvm: []\n": "vm: there is no such field; did you mean vms?",
    "schema_version: 1\ntenants:\n  - {name: a, qouta: {}}\n":
        "tenants.0.qouta: there is no such field; did you mean quota?",
    "schema_version: 1\nofferings:\n  - {name: a, kind: mig, scheduler: {polcy: best_effort}}\n":
        "offerings.0.scheduler.polcy: there is no such field; did you mean policy?",
    f"{VM} labels: {{team: 1}}}}\n": "3: vms.0.labels.team: is no text, got 1: a text stands in quotes",
    f"{VM} labels: {{since: 2026-12-01}}}}\n": "got datetime.date(2026, 12, 1): a text stands in quotes",
    f"{VM} memory: 4}}\n": "vms.0.memory: is no text, got 4: say the unit, like 4GiB",
    f"{VM} lease: 8}}\n": "vms.0.lease: is no text, got 8: say the unit, like 8h",
    f"{VM} vcpus: '4'}}\n": "vms.0.vcpus: is no whole number, got '4': a number stands without quotes",
    "schema_version: 1\n---\nschema_version: 1\n":
        "2: a second document begins here: put each into a file of its own",
    "schema_version: 1\nvms:\n\t- name: a\n": "3: not YAML: a tab stands before it, where spaces indent",
}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), MANIFEST.items())
def test_of_a_file_for_apply(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_manifest(HERE, text)
    assert told in "\n".join([caught.value.message, *(one.message for one in caught.value.reasons)])


def _read(file: Path, kind: str) -> None:
    if kind == "fleet":
        read_groups(file, shipped_profiles().catalogue)
    elif kind == "offerings":
        load_offerings([file], shipped_profiles().catalogue)
    elif kind == "mig":
        read_mig_config(file, file.read_text(), "a")
    else:
        read_lock(file, file.read_text())


OTHERS = {
    "fleet": ("- {count: 1, gpu_model: T4, gpu_per_host: 1, vcpus: 8, memory_gib: 8}\n", "gpus_per_host"),
    "offerings": ("schema_version: 1\nofferings:\n  - {name: a, kind: mig, mig_profil: 1g.5gb}\n", "mig_profile"),
    "mig": ("version: v1\nmig-configs:\n  a:\n    - {devices: all, mig-enable: false}\n", "mig-enabled"),
    "lock": ("schema_version: 1\ngroups:\n  a: {host_drivr: '1'}\n", "host_driver"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_of_other_files(tmp_path: Path, kind: str) -> None:
    text, meant = OTHERS[kind]
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        _read(file, kind)
    said = [caught.value.message, *(one.message for one in caught.value.reasons)]
    assert f"there is no such field; did you mean {meant}?" in "\n".join(said)


def test_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", str(tmp_path))
    (tmp_path / "config.yaml").write_text("refresh_secnds: 3\n")
    with pytest.raises(InvalidInput) as caught:
        load_settings()
    assert (caught.value.message, caught.value.hint) == (
        "setting refresh_secnds: there is no such field", "did you mean refresh_seconds?",
    )  # fmt: skip


FORMS: list[tuple[type[BaseModel], Any]] = [
    (ManifestForm, {"schema_version": 1, "offerings": [OFFERING]}), (OfferingFileForm, {"schema_version": 1}),
    (HostGroup, {}), (DriverLockForm, {"schema_version": 1}), (MigFileForm, {}),
]  # fmt: skip


@pytest.mark.parametrize(("form", "given"), FORMS)
def test_every_field_of_a_form_is_found_by_its_name_with_a_letter_more(form: type[BaseModel], given: Any) -> None:
    for name, field in form.model_fields.items():
        said = field.alias or name
        with pytest.raises(ValidationError) as caught:
            form.model_validate({**given, f"{said}x": 1})
        places = [one["loc"] for one in caught.value.errors() if one["type"] == "extra_forbidden"]
        assert [nearest_field(form, place) for place in places] == [said]
