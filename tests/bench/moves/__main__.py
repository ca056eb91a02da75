# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.moves [--case CASE ...]``: writes build/bench/moves.json; other cases keep their rows.

``lab``: ``vgpuctl vm move`` of a running VM with a mediated device, back and forth between two lab hosts, and in turn
the same VM moved by ``virsh migrate --live`` and what an operator types around it, in one run. The forecasts are those
that each of these moves printed before it began, against what it took; the worst of them counts.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.bench.moves.by_hand import Pauses, by_hand
from tests.bench.moves.in_memory import PARALLEL, VMS, drained, forecast_error
from tests.bench.moves.rearranged import GPUS, HOSTS, LOAD, accepted, defragmented
from tests.bench.placement.rows import Row, keep, read, rows_of, table
from tests.lab.two_hosts import Site, two_hosts

REPORT: Final = Path("build/bench/moves.json")
ROUNDS: Final = 4
_VM: Final = "mdev"
_BESIDE: Final = re.compile(r"([0-9.]+) s, forecast ([0-9.]+) to ([0-9.]+) s")


def _on_lab_hosts() -> list[Row]:
    with tempfile.TemporaryDirectory() as state, two_hosts(Path(state)) as site:
        site.start(_VM)
        site.count(_VM)
        _moved(site, "target")  # the image is on both hosts, and their drivers have been asked
        return rows_of("moves", _VM, "vgpuctl", _measured(site))


def _measured(site: Site) -> dict[str, float | int | None]:
    raw = by_hand(site, _VM)
    pauses = Pauses(site, raw.addresses)
    domain = f"default.{_VM}"
    ours, by_virsh, our_pauses, virsh_pauses = list[float](), list[float](), list[float](), list[float]()
    errors, pause_errors = list[float](), list[float]()
    ways = [("target", "source"), ("source", "target")] * (ROUNDS // 2)
    try:
        for number, (source, target) in enumerate(ways):
            ours_first = number % 4 in {1, 2}  # whichever goes second comes to a host where the other's guest runs
            for is_ours in (ours_first, not ours_first):
                (ours if is_ours else by_virsh).append(_moved(site, target) if is_ours else raw.move(source, target))
            virsh_pauses.append(pauses.of_last(raw.vm, source, target))
            our_pauses.append(pauses.of_last(domain, source, target))
            for known, error in zip((errors, pause_errors), _forecast_errors(site), strict=False):
                known.append(error)
            print(f"to {target}: {ours[-1]:.1f} s, {our_pauses[-1]:.0f} ms; virsh {by_virsh[-1]:.1f} s, "
                  f"{virsh_pauses[-1]:.0f} ms", flush=True)  # fmt: skip
    finally:
        pauses.end()
        raw.remove(ways[-1][1])
    values = {
        "seconds": statistics.median(ours),
        "raw_seconds": statistics.median(by_virsh),
        "pause_ms": statistics.median(our_pauses),
        "raw_pause_ms": statistics.median(virsh_pauses),
    }
    forecasts = {"forecast_error": max(errors, default=None), "pause_forecast_error": max(pause_errors, default=None)}
    return {**values, "ratio_to_raw": values["seconds"] / values["raw_seconds"], **forecasts}


def _forecast_errors(site: Site) -> list[float]:
    """Of the newest move, how long it takes and stands still: from the middle, as a part of what it was."""
    newest = site.product.json("operation", "list", "--kind", "move_running_vm", "--limit", "1")[0]["id"]
    text = "\n".join(str(step["message"]) for step in site.product.json("operation", "show", newest)["steps"])
    print(text, flush=True)
    known = [tuple(map(float, numbers)) for numbers in _BESIDE.findall(text)]
    return [abs((low + high) / 2 - took) / took for took, low, high in known]


def _moved(site: Site, target: str) -> float:
    site.product.run("doctor")
    began = time.monotonic()
    site.product.ok("vm", "move", _VM, "--to", target, limit_s=600)
    return time.monotonic() - began


def _forecasts() -> list[Row]:
    return rows_of("moves", "disks that are drawn", "10 copies measured", {"forecast_error": forecast_error()})


def _drained() -> list[Row]:
    return rows_of("moves", f"drain of {VMS} VMs", f"{PARALLEL} at once", drained())


def _rearranged() -> list[Row]:
    fleet = f"{HOSTS} hosts of {GPUS} L40S"
    return [
        *rows_of("moves", f"{fleet}, load {LOAD}", "no moves", accepted(with_moves=False)),
        *rows_of("moves", f"{fleet}, load {LOAD}", "with moves", accepted(with_moves=True)),
        *rows_of("moves", f"{fleet}, half of the VMs gone", "defragment", defragmented()),
    ]


CASES: Final[dict[str, Callable[[], list[Row]]]] = {
    "forecast": _forecasts,
    "drain": _drained,
    "rearranged": _rearranged,
    "lab": _on_lab_hosts,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.moves")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    for case in parser.parse_args().case:
        keep(CASES[case](), REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")


if __name__ == "__main__":
    main()
