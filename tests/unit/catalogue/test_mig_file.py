# SPDX-License-Identifier: Apache-2.0
"""mig-parted's files as it reads them, with its mistakes told by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.catalogue.mig_file import read_mig_config
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.mig_layout import MigEntry

FILE = Path("config.yaml")
HEAD = "version: v1\nmig-configs:\n  one:\n"


def read(entry: str, name: str = "one") -> list[MigEntry]:
    return [form.to_core() for form in read_mig_config(FILE, HEAD + entry, name)]


def test_an_entry_names_gpus_a_filter_and_counts() -> None:
    (entry,) = read(
        "    - device-filter: '0x20B510DE'\n      devices: [0, 3]\n      mig-enabled: true\n"
        '      mig-devices: {"1g.10gb": 2, "3g.40gb": 1, "2g.20gb": 0}\n'
    )
    assert entry == MigEntry(
        devices=(0, 3), filters=("0x20B510DE",), enabled=True, counts=(("1g.10gb", 2), ("3g.40gb", 1))
    )


@pytest.mark.parametrize("counts", ["{}", '{"1g.24gb+me.all": 1}', '{"1g.24gb+gfx": 4}', '{"2g.48gb-me": 2}'])
def test_all_gpus_and_every_attribute_are_understood(counts: str) -> None:
    (entry,) = read(f"    - devices: all\n      mig-enabled: true\n      mig-devices: {counts}\n")
    assert entry.devices is None
    assert entry.filters == ()


def test_off_needs_no_devices_of_mig() -> None:
    (entry,) = read("    - devices: all\n      mig-enabled: false\n")
    assert (entry.enabled, entry.counts) == (False, ())


@pytest.mark.parametrize(
    "entry,line,said",
    [
        ("    - devices: all\n", 4, "mig-enabled"),
        ("    - devices: some\n      mig-enabled: false\n", 4, "devices"),
        ("    - devices: all\n      mig-enabled: true\n", 4, "mig-devices is missing"),
        ('    - devices: all\n      mig-enabled: false\n      mig-devices: {"1g.5gb": 1}\n', 4, "although"),
        ('    - devices: all\n      mig-enabled: true\n      mig-devices: {"1g.5gb": 0}\n', 4, "all counts"),
        ('    - devices: all\n      mig-enabled: true\n      mig-devices: {"1g.5gb": -1}\n', 6, "is less than 0"),
        ('    - devices: all\n      mig-enabled: true\n      mig-devices: {"big": 1}\n', 4, "not the name"),
        ('    - devices: all\n      mig-enabled: true\n      mig-devices: {"1c.3g.40gb": 1}\n', 4, "whole ones only"),
        ("    - devices: all\n      mig-enabled: false\n      also: 1\n", 6, "no such field"),
        ("    []\n", 4, "fewer than 1"),
        ("    - devices: all\n      device-filter: A100\n      mig-enabled: false\n", 5, "not of the form"),
    ],
)
def test_a_mistake_is_told_with_its_line(entry: str, line: int, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(entry)
    assert caught.value.code == "mig.config_invalid"
    told = " ".join([caught.value.message, *(one.message for one in caught.value.reasons)])
    assert f"config.yaml:{line}:" in told
    assert said in told.lower()


@pytest.mark.parametrize(
    "text", ["", "version: v2\nmig-configs: {}\n", "mig-configs: {}\n", "version: v1\n", "[1]\n", "{"]
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_mig_config(FILE, text, "one")
    assert caught.value.code == "mig.config_invalid"


def test_a_configuration_that_the_file_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(InvalidInput) as caught:
        read("    - devices: all\n      mig-enabled: false\n", "all-disabled")
    assert (caught.value.code, caught.value.hint) == ("mig.config_unknown", "it has one")
