# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import Catalogue, shipped
from orchestrator.catalogue.tables import TableRow, read_table
from orchestrator.core.errors import InvalidInput
from tests.unit.catalogue.consistency import find_gaps


class Fruit(TableRow):
    name: str
    grams: int
    ripe: bool | None = None


def messages(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "fruit.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        read_table(path, Fruit)
    assert caught.value.code == "catalogue.invalid"
    return [f"{r.subjects[0].removeprefix(str(tmp_path) + '/')}: {r.message}" for r in caught.value.reasons]


def test_a_good_table_is_read_with_blank_and_unknown_cells_as_none(tmp_path: Path) -> None:
    path = tmp_path / "fruit.csv"
    path.write_text('name,grams,ripe\n"pear, green",120,yes\nfig,7,\nlime,9,unknown\n')
    assert [(f.name, f.grams, f.ripe) for f in read_table(path, Fruit)] == [
        ("pear, green", 120, True),
        ("fig", 7, None),
        ("lime", 9, None),
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("name,grams\n", ["fruit.csv:1: column 'ripe' is missing"]),
        ("name,grams,ripe,price\n", ["fruit.csv:1: unknown column 'price'"]),
        ("name,grams,ripe,ripe\n", ["fruit.csv:1: a column appears twice"]),
        ("name,grams,ripe\nfig,7\n", ["fruit.csv:2: 2 cells in a table of 3 columns"]),
        ("name,grams,ripe\n\nfig,7,no\n", ["fruit.csv:2: 0 cells in a table of 3 columns"]),
        ("name,grams,ripe\n,7,no\n", ["fruit.csv:2: name: is missing"]),
        ('name,grams,ripe\nfig,7,"no\n', ["fruit.csv:2: unexpected end of data"]),
    ],
)
def test_a_malformed_table_is_refused_with_file_line_and_reason(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert messages(tmp_path, text) == expected


def test_every_bad_row_is_reported_at_once(tmp_path: Path) -> None:
    found = messages(tmp_path, "name,grams,ripe\nfig,heavy,no\npear,120,no\nlime,9,maybe\n")
    assert [message.split(": ")[0:2] for message in found] == [
        ["fruit.csv:2", "grams"],
        ["fruit.csv:4", "ripe"],
    ]


def test_a_table_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(tmp_path / "none.csv", Fruit)
    (tmp_path / "bytes.csv").write_bytes(b"name,grams,ripe\n\xff\xfe")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_table(tmp_path / "bytes.csv", Fruit)


@pytest.mark.parametrize(
    "table, old, new, rule",
    [
        ("vgpu_types.csv", "NVIDIA L40S-12Q,Q,time-sliced,1155,,,12288,,4", None, "vgpu_type.framebuffer_times_max"),
        ("mig_profiles.csv", '"{0,1,2,3}:1",4', '"{0,1,2,4}:1",4', "mig_profile.start_outside"),
        ("mig_profiles.csv", '"{0,2}:2",2,', '"{0,2}:2",3,', "mig_profile.maximum"),
        ("gpu_models.csv", "A2,ampere,10DE,25B6,157E", "A2,ampere,10DE,25B6,14A9", "gpu_model.pci_ids"),
        ("fabric_partitions.csv", ",3,2,1 3,", ",3,2,1 5,", "fabric.nested"),
    ],
)
def test_a_table_made_inconsistent_is_caught_by_the_checker(
    tmp_path: Path, table: str, old: str, new: str | None, rule: str
) -> None:
    directory = tmp_path / "nvidia"
    shutil.copytree(shipped().directory, directory)
    text = (directory / table).read_text(encoding="utf-8")
    if new is None:
        line = next(row for row in text.splitlines() if ",NVIDIA L40S-12Q," in row)
        old, new = line, line.replace(",12288,", ",12289,")
    assert old in text
    (directory / table).write_text(text.replace(old, new, 1), encoding="utf-8")
    added = set(find_gaps(Catalogue(directory))) - set(find_gaps(shipped()))
    assert rule in {gap.rule for gap in added}
