# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.geometries import find_model
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.model import GpuModel
from orchestrator.simulate_placement.fleet_file import read_fleet
from orchestrator.simulate_placement.run import HEADER, read_requests, run

FLEET = """\
groups:
  - name: hgx
    count: 2
    gpu_model: H100 SXM5 80GB
    gpus_per_host: 8
    vcpus: 64
    memory_gib: 512
    baseboard: HGX H100
    modes_allowed: [mig, passthrough]
  - count: 1
    gpu_model: L4
    gpus_per_host: 2
    vcpus: 16
    memory_gib: 64
    modes_allowed: [mixed]
"""
ROWS = (
    "a,0,100,3g.40gb,1,4,16,t,0",
    "b,1,,gpu:8,1,8,64,t,0",
    "c,2,,gpu:8,1,8,64,t,0",
    "d,3,9,NVIDIA L4-8Q,1,1,1,u,0",
    "e,200,,gpu:8,1,8,64,t,0",
    "f,201,,NVIDIA A40-8Q,1,1,1,t,0",
    "g,202,,NVIDIA L4-24Q,2,1000,1,t,0",
)


def write(directory: Path, fleet: str = FLEET, rows: tuple[str, ...] = ROWS) -> tuple[Path, Path, Path]:
    fleet_path, requests = directory / "fleet.yaml", directory / "requests.csv"
    fleet_path.write_text(fleet)
    requests.write_text("\n".join((",".join(HEADER), *rows)) + "\n")
    return fleet_path, requests, directory / "result.json"


def test_a_run_answers_every_request_in_order_and_sums_up(tmp_path: Path) -> None:
    fleet, requests, out = write(tmp_path)
    summary, _ = run(fleet, requests, out)
    result = json.loads(out.read_text())
    answers = {answer["id"]: answer for answer in result["requests"]}
    assert list(answers) == list("abcdefg")
    assert all(set(answer) == {"id", "accepted", "host", "gpu", "start", "reason"} for answer in answers.values())
    assert answers["a"]["accepted"]
    assert answers["a"]["start"] in {0, 4}
    assert answers["b"]["gpu"] == list(range(8))
    assert answers["b"]["host"] != answers["a"]["host"]
    assert answers["c"]["reason"] == "gpu.no_capacity"
    assert answers["d"]["host"] == "l4-1-0"
    assert answers["e"]["host"] == answers["a"]["host"]
    assert answers["f"]["reason"] == "profile.unsupported"
    assert answers["g"]["reason"] == "host.no_room"
    assert (result["summary"]["requests"], result["summary"]["accepted"]) == (7, 4) == (
        summary["requests"], summary["accepted"],
    )  # fmt: skip


ONE_H100 = "- {count: 1, gpu_model: H100 SXM5 80GB, gpus_per_host: 1, vcpus: 64, memory_gib: 512, modes_allowed: [mig]}"


def test_a_request_of_higher_priority_stops_those_that_lose_the_fewest_slot_hours(tmp_path: Path) -> None:
    rows = (
        "old,0,9000,3g.40gb,1,1,1,t,0", "young,3600,9000,3g.40gb,1,1,1,t,0", "equal,3700,9000,3g.40gb,1,1,1,t,0",
        "urgent,7200,8000,3g.40gb,1,1,1,t,5", "later,8500,,3g.40gb,1,1,1,t,0", "last,8600,,3g.40gb,1,1,1,t,0",
    )  # fmt: skip
    fleet, requests, out = write(tmp_path, ONE_H100, rows)
    run(fleet, requests, out)
    result = json.loads(out.read_text())
    answers = {answer["id"]: answer for answer in result["requests"]}
    assert [name for name, answer in answers.items() if answer["accepted"]] == ["old", "young", "urgent", "later"]
    assert answers["young"]["reason"] == "preempted by urgent at 7200 s"
    assert answers["old"]["reason"] is None
    assert answers["urgent"]["start"] == answers["young"]["start"]
    assert answers["equal"]["reason"] == answers["last"]["reason"] == "gpu.no_capacity"
    assert (result["summary"]["preempted"], result["summary"]["accepted"]) == (1, 4)


def test_equal_priorities_stop_nobody(tmp_path: Path) -> None:
    rows = ("a,0,,7g.80gb,1,1,1,t,5", "b,1,,7g.80gb,1,1,1,t,5", "c,2,,1g.10gb,1,1,1,t,3")
    fleet, requests, out = write(tmp_path, ONE_H100, rows)
    assert run(fleet, requests, out)[0]["preempted"] == 0


def test_the_same_files_give_the_same_result(tmp_path: Path) -> None:
    fleet, requests, out = write(tmp_path)
    results = []
    for _ in range(2):
        run(fleet, requests, out)
        results.append(json.loads(out.read_text())["requests"])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "old, new, line, words",
    [
        ("count: 2", "count: 0", 3, "count"),
        ("gpu_model: L4", "gpu_model: L4000", 11, "no GPU model is called 'L4000'"),
        ("gpu_model: H100 SXM5 80GB", "gpu_model: H100", 4, "could be any of"),
        ("baseboard: HGX H100", "baseboard: HGX B300", 8, "not known"),
        ("[mixed]", "[sideways]", 15, "'sideways' is not one of"),
        ("vcpus: 16", "vcpus: many", 13, "vcpus"),
        ("memory_gib: 64", "memory: 64", 10, "memory_gib"),
        ("groups:", "racks:", 2, "unknown racks"),
        ("groups:", "pools: [fast]\ngroups:", 1, "unknown pools: it belongs in a group"),
        ("count: 2", "signals: [xid-9999]\n    count: 2", 3, "no signal is called 'xid-9999'"),
        ("  - name: hgx", "  - name: [", 4, "not YAML"),
        ("  - count: 1", "  - name: hgx\n    count: 1", 10, "another group's hosts are called 'hgx' too"),
        ("memory_gib: 64", "memory_gib: .nan", 14, "memory_gib"),
        ("count: 1", "count: 10000000000", 10, "count"),
        ("  - name: hgx", "  - name: HGX_1", 2, "name"),
    ],
)
def test_mistakes_in_a_fleet_file_come_with_line_and_reason(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    fleet, requests, out = write(tmp_path, FLEET.replace(old, new, 1))
    with pytest.raises(InvalidInput) as caught:
        run(fleet, requests, out)
    assert caught.value.exit_code == 2
    shown = [f"{reason.subjects[0]}: {reason.message}" for reason in caught.value.reasons]
    assert any(f"fleet.yaml:{line}: " in text and words in text for text in shown), shown
    assert not out.exists()


@pytest.mark.parametrize(
    "row, words",
    [
        ("a,0,,3g.40gb,1,4,16,t", "8 cells"),
        ("a,zero,,3g.40gb,1,4,16,t,0", "arrive_s: 'zero' is not a number"),
        ("a,5,4,3g.40gb,1,4,16,t,0", "depart_s"),
        ("a,nan,,3g.40gb,1,4,16,t,0", "arrive_s"),
        ("a,0,,3g.40gb,0,4,16,t,0", "count"),
        ("a,0,,3g.40gb,1,-4,16,t,0", "vcpus"),
        ("a,0,,3g.40gb,1,4,inf,t,0", "memory_gib"),
        ("a,0,,3g.40gb,,4,1,t,0", "number"),
        (",0,,3g.40gb,1,4,16,t,0", "id"),
        ("first,0,,3g.40gb,1,4,16,t,0", "given twice"),
        ("a,-1,,3g.40gb,1,4,16,t,0", "arrive_s: negative"),
        ("a,0,nan,3g.40gb,1,4,16,t,0", "depart_s: before arrive_s, or not a number"),
        ("a,0,,3g.40gb,1,4,16,t,99999999999", "priority"),
        ("a,0,,3g.40gb,99999999999999999999,4,16,t,0", "count: not between"),
        ("a,0,,3g.41gb,1,4,16,t,0", "no profile is called '3g.41gb'"),
        ('a,0,,"3g.40gb,1,4,16,t,0', "unexpected end"),
    ],
)
def test_mistakes_in_a_request_file_come_with_line_and_reason(tmp_path: Path, row: str, words: str) -> None:
    fleet, requests, out = write(tmp_path, rows=("first,0,,3g.40gb,1,4,16,t,0", row))
    with pytest.raises(InvalidInput) as caught:
        run(fleet, requests, out)
    assert "requests.csv:3: " in caught.value.message
    assert words in caught.value.message
    assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.yaml", "requests.csv"]


@pytest.mark.parametrize("text", ["\ufeff{}\n{}\n", "{}\r\n{}\r\n"])
def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path: Path, text: str) -> None:
    path = tmp_path / "requests.csv"
    path.write_bytes(text.format(",".join(HEADER), ROWS[0]).encode())
    assert [row.id for row in read_requests(path)] == ["a"]


@pytest.mark.parametrize("content", [b"", b"\xff\xfei\x00d\x00"])
def test_a_file_that_is_empty_or_no_text_is_refused_at_its_first_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "requests.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"requests.csv:1: "):
        list(read_requests(path))


def test_every_field_of_a_group_is_named_when_one_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("- {count: 1}")
    with pytest.raises(InvalidInput) as caught:
        read_fleet(path, shipped())
    hint = str(caught.value.hint)
    assert hint.startswith("a group has count, gpu_model, gpus_per_host, vcpus, memory_gib and, if wanted, name, ")
    assert [name for name in ("pools", "lacks", "nics_per_host", "mediated") if name not in hint] == []


def test_a_wrong_header_is_named(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("id,arrive\n")
    with pytest.raises(InvalidInput, match=r"requests.csv:1: the header is 'id,arrive'"):
        list(read_requests(path))


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "A100-80GB", "A100 SXM4 80GB", "nvidia l40s", "H100 PCIe"])
def test_gpu_models_go_by_the_names_that_people_use(tmp_path: Path, name: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"- {{count: 1, gpu_model: {name}, gpus_per_host: 4, vcpus: 8, memory_gib: 8}}")
    (host,) = read_fleet(path, shipped())
    assert host.gpus[0].geometry.options


def test_a_model_named_exactly_is_that_model() -> None:
    for name in ("NVIDIA A2", "NVIDIA A16"):
        found = find_model(shipped(), name)
        assert isinstance(found, GpuModel)
        assert found.name == name.removeprefix("NVIDIA ")


def test_eight_gpus_of_a_baseboards_model_are_joined_as_it_joins_them(tmp_path: Path) -> None:
    group = "- count: 1\n  gpu_model: H100 SXM5 80GB\n  gpus_per_host: {gpus}\n  vcpus: 8\n  memory_gib: 64\n"
    for gpus, partitions in ((8, 15), (4, 0)):
        (tmp_path / "fleet.yaml").write_text(group.format(gpus=gpus))
        (host,) = read_fleet(tmp_path / "fleet.yaml", shipped())
        assert len(host.fabric_partitions) == partitions
