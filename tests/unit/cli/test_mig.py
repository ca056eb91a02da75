# SPDX-License-Identifier: Apache-2.0
"""GPU instances of a host, as a table and as a configuration of mig-parted."""

from __future__ import annotations

from typing import Any

import yaml

from orchestrator.cli.commands.mig import config_lines, entries, rows


def gpu(address: str, *, mig: bool | None, **instances: tuple[str, str | None]) -> dict[str, Any]:
    """``instances``: slot (``s4``) → profile and VM."""
    found: list[dict[str, Any]] = [
        {
            "id": number,
            "profile": profile,
            "start": int(slot[1:]),
            "size": 2,
            "compute_instances": 1,
            "vm": None if vm == "layout" else vm,
            "vms": [] if vm in {None, "layout"} else [vm],
            "layout": vm == "layout",
            "mig_devices": [],
            "capabilities": [],
        }
        for number, (slot, (profile, vm)) in enumerate(instances.items())
    ]
    return {"host": "gpu1", "address": address, "mig_enabled": mig, "gpu_instances": found}


GPUS = [
    gpu("0000:01:00.0", mig=True, s0=("1g.20gb", "default/train"), s4=("1g.20gb", None)),
    gpu("0000:02:00.0", mig=False),
    gpu("0000:03:00.0", mig=None),
    gpu("0000:04:00.0", mig=True, s2=("1g.20gb", "layout"), s6=("1g.20gb", None)),
    gpu("0000:05:00.0", mig=True),
]


def test_an_export_is_a_file_of_mig_parted_with_one_entry_for_gpus_that_are_alike() -> None:
    assert yaml.safe_load("\n".join(config_lines(entries(GPUS)))) == {
        "version": "v1",
        "mig-configs": {
            "current": [
                {"devices": [0, 3], "mig-enabled": True, "mig-devices": {"1g.20gb": 2}},
                {"devices": [1], "mig-enabled": False},
                {"devices": [4], "mig-enabled": True, "mig-devices": {}},
            ]
        },
    }


def test_every_instance_has_a_row_and_says_whose_it_is() -> None:
    shown = [(row["number"], row["mig"], row["profile"], row["slots"], row["vm"]) for row in rows(GPUS)]
    assert shown[:3] == [
        (0, True, "1g.20gb", "0 to 1", "default/train"),
        (0, True, "1g.20gb", "4 to 5", "not ours"),
        (1, False, None, None, None),
    ]
    assert [vm for *_, vm in shown[4:6]] == ["layout", "not ours"]
