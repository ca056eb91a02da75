# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.offering_files import load_offerings, validate_offering_file
from orchestrator.catalogue.offering_schema import OfferingForm, json_schema
from orchestrator.catalogue.tables import profiles_directory
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.vgpu_parameters import Scheduler

SHIPPED = sorted((profiles_directory() / "offerings").glob("*.yaml"))
HEAD = "schema_version: 1\nofferings:\n"
GOOD = HEAD + "  - name: small\n    kind: time_sliced\n    vgpu_type: GRID T4-2Q\n"


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "o.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [f"{p.line}: {p.reason}" for p in validate_offering_file(path)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_file_has_no_problem(path: Path) -> None:
    assert validate_offering_file(path) == ()


@pytest.mark.parametrize(
    "board",
    ["T4", "A10", "A16", "A40", "A30", "A100", "L4", "L40S", "H100", "H200", "RTX Pro 6000"],
)
def test_the_shipped_set_covers_a_gpu(board: str) -> None:
    types = {o.vgpu_type for o in load_offerings(SHIPPED, shipped()).values() if o.vgpu_type}
    assert any(name.split(" ", 1)[1].startswith(board) for name in types)


@pytest.mark.parametrize("kind", ["time_sliced", "mig_backed", "passthrough"])
def test_the_shipped_set_has_offerings_of_a_kind(kind: str) -> None:
    assert any(o.kind == kind for o in load_offerings(SHIPPED, shipped()).values())


def test_the_shipped_set_passes_one_two_four_and_eight_gpus_through() -> None:
    offerings = load_offerings(SHIPPED, shipped()).values()
    assert {o.gpu_count for o in offerings if o.kind == "passthrough"} == {1, 2, 4, 8}


def test_the_schema_file_is_that_of_the_code() -> None:
    text = (profiles_directory() / "offerings" / "schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == json_schema()


def test_the_reference_page_explains_every_field() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "offerings.md").read_text(encoding="utf-8")
    assert [field for field in OfferingForm.model_fields if f"`{field}`" not in page] == []


def test_what_a_file_says_is_what_the_offering_holds(tmp_path: Path) -> None:
    text = GOOD + (
        "    version: 3\n    description: for tests\n    scheduler: {policy: equal_share, time_slice_ms: 4}\n"
        "    parameters: {console: false}\n    numa: strict\n    cpu: pinned\n    anti_affinity: host\n"
        "    migratable: true\n    hosts: {tier: gold, rack: '3'}\n"
    )
    (tmp_path / "o.yaml").write_text(text)
    offering = load_offerings([tmp_path / "o.yaml"], shipped())["small"]
    assert (offering.version, offering.description, offering.vgpu_type) == (3, "for tests", "GRID T4-2Q")
    assert offering.scheduler == Scheduler(policy="equal_share", time_slice_ms=4)
    assert (offering.parameters.console, offering.numa, offering.cpu) == (False, "strict", "pinned")
    assert offering.hosts == (("rack", "3"), ("tier", "gold"))
    assert (offering.anti_affinity, offering.migratable, offering.origin) == ("host", True, "catalogue")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "1: the file: is no list of KEY: VALUE"),
        ("- 1\n", "1: the file: is no list of KEY: VALUE"),
        ("offerings: []\n", "1: schema_version: is missing; a file begins with 'schema_version: 1'"),
        ("schema_version: 2\nofferings: []\n", "1: schema_version: is not 1, got 2"),
        (GOOD + "    kind: mig\n", "6: kind is given twice"),
        (GOOD + "    colour: red\n", "6: offerings.0.colour: there is no such field, got 'red'"),
        (GOOD + "    version: '1'\n", "6: offerings.0.version: is no whole number, got '1'"),
        (GOOD + "    version: 0\n", "6: offerings.0.version: is less than 1, got 0"),
        (GOOD + "    migratable: 'yes'\n", "6: offerings.0.migratable: is neither true nor false, got 'yes'"),
        (GOOD + "    numa: near\n", "6: offerings.0.numa: is not 'any', 'prefer' or 'strict', got 'near'"),
        (
            GOOD + "    hosts:\n      rack: '3'\n      -Tier: gold\n",
            "8: offerings.0.hosts.-Tier.[key]: is not of the form",
        ),
        (GOOD + "    hosts:\n      rack: 3\n", "7: offerings.0.hosts.rack: is no text, got 3"),
        (GOOD + "    hosts: {tier: 'a b'}\n", "6: offerings.0.hosts.tier: is not of the form"),
        (GOOD + "    hosts: [gold]\n", "6: offerings.0.hosts: is no list of KEY: VALUE"),
        (
            GOOD + "    hosts:\n" + "".join(f"      l{n}: x\n" for n in range(33)),
            "7: offerings.0.hosts: has more than 32 entries",
        ),
        (GOOD + "    provision: [guest_chek]\n", "6: small: there is no role 'guest_chek', did you mean guest_check"),
        (
            GOOD + "    provision: [guest_exporter]\n    provision_settings: {exporter_port: 80}\n",
            "7: small: exporter_port cannot be 80, TCP port where readings can be fetched: 1024 to 65535",
        ),
        (
            GOOD + "    provision_settings: {exporter_port: 9500}\n",
            "6: small: exporter_port is of role guest_exporter, which is not run",
        ),
        (
            HEAD + "  - name: Big One\n    kind: mig\n    mig_profile: 1g.10gb\n",
            "3: offerings.0.name: is not of",
        ),
        (HEAD + "  - name: x\n", "3: offerings.0.kind: is missing"),
        (HEAD + "  - name: x\n   kind: mig\n", "4: not YAML: did not find expected"),
        (HEAD + "  - &a {name: x}\n  - *a\n", "3: anchors and aliases are not supported"),
        ("a: " + "[" * 30 + "]" * 30 + "\n", "1: nested more than 20 deep"),
        ("a: 2026-13-45\n", "1: '2026-13-45' is no timestamp that can be read"),
        (b"\xff\xfe\x00", "0: cannot be read"),
        (b"a: \x00\n", "1: the character U+0000 cannot be seen"),
        ("a: " + "x" * (1024 * 1024) + "\n", "0: larger than 1024 KiB"),
        (
            GOOD + "  - name: small\n    kind: mig\n    mig_profile: 1g.10gb\n",
            "6: offering small exists in line 3 already",
        ),
        (
            HEAD + "  - name: x\n    kind: time_sliced\n    vgpu_type: NVIDIA L40S-12X\n",
            "5: x: vgpu_type 'NVIDIA L40S-12X' is in no table; did you mean NVIDIA L40S-12Q or",
        ),
        (
            HEAD + "  - name: x\n    kind: time_sliced\n    vgpu_type: nvidia-233\n",
            "5: x: vgpu_type 'nvidia-233' is in no table; numbers of types differ from driver to driver: 'vgpuctl prof",
        ),
        (
            HEAD + "  - name: x\n    kind: mig\n    mig_profile: 2g.21gb\n",
            "5: x: mig_profile '2g.21gb' is in no table; did you mean",
        ),
        (
            HEAD + "  - name: x\n    kind: passthrough\n    gpu_count: 1\n    gpu_models: [Tesla T5]\n",
            "6: x: gpu_models 'Tesla T5' is in no table; did you mean Tesla T4",
        ),
        (
            HEAD + "  - name: x\n    kind: time_sliced\n    vgpu_type: NVIDIA L40S-12C\n"
            "    parameters:\n      console: false\n      uvm: true\n",
            "8: x: unified memory works on full-size time-sliced types and MIG-backed ones; NVIDIA L40S-12C is a part",
        ),
        (
            GOOD + "    nvlink_p2p: true\n",
            "6: offerings.0.nvlink_p2p: there is no such field, got True",
        ),
        (
            GOOD + "    parameters:\n      console: true\n",
            "7: offerings.0.parameters.console: is not False, got True",
        ),
    ],
)
def test_a_bad_file_is_answered_with_line_and_reason(tmp_path: Path, text: str | bytes, expected: str) -> None:
    found = problems(tmp_path, text)
    assert [message for message in found if message.startswith(expected)], found


def test_problems_come_in_the_order_of_the_lines(tmp_path: Path) -> None:
    found = problems(tmp_path, GOOD + "    gpu_count: 1\n  - name: y\n    kind: passthrough\n    gpu_count: 99\n")
    assert [line.split(":")[0] for line in found] == ["6", "9"]


def test_a_mistake_of_form_hides_no_other_mistake(tmp_path: Path) -> None:
    unknown = "  - name: y\n    kind: time_sliced\n    vgpu_type: GRID T4-3X\n"
    again = "  - name: small\n    kind: time_sliced\n    vgpu_type: GRID T4-2Q\n"
    found = problems(tmp_path, GOOD.replace("schema_version: 1", "schema_version: 2") + unknown + again)
    assert [line.split(":")[0] for line in found] == ["1", "8", "9"], found
    found = problems(tmp_path, GOOD + "    colour: red\n" + unknown)
    assert [line.split(":")[0] for line in found] == ["6", "9"], found


def test_a_missing_file_is_a_problem_and_not_a_crash(tmp_path: Path) -> None:
    (problem,) = validate_offering_file(tmp_path / "none.yaml")
    assert (problem.line, "cannot be read" in problem.reason) == (0, True)


def test_names_newer_than_the_tables_are_accepted_when_the_file_says_so(tmp_path: Path) -> None:
    text = HEAD + "  - name: x\n    kind: time_sliced\n    vgpu_type: NVIDIA Z9-8C\n"
    assert problems(tmp_path, text)
    assert problems(tmp_path, text + "    unlisted: true\n") == []


def test_one_name_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(InvalidInput, match="offering small exists in another file already"):
        load_offerings([tmp_path / "a.yaml", tmp_path / "b.yaml"], shipped())


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 50_000,
        "!!python/object/apply:os.system [id]\n",
        "? [a]\n: b\n",
        "<<: {a: 1}\n",
        "---\na: 1\n---\nb: 2\n",
        "schema_version: " + "9" * 10_000 + "\n",
        "schema_version: .nan\nofferings: .inf\n",
        "1: 2\n",
    ],
    ids=[
        "deep list",
        "deep map",
        "python tag",
        "list key",
        "merge",
        "documents",
        "long number",
        "floats",
        "number key",
    ],
)
def test_a_trick_is_a_problem_and_not_a_crash(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text)


@settings(max_examples=200)
@given(junk=st.binary(max_size=200), at=st.integers(0, len(GOOD)))
def test_no_bytes_in_a_file_make_the_validator_crash(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "o.yaml"
    path.write_bytes(GOOD[:at].encode() + junk + GOOD[at:].encode())
    for problem in validate_offering_file(path):
        assert problem.line >= 0
        assert problem.reason
