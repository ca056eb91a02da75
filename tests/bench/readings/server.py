# SPDX-License-Identifier: Apache-2.0
"""What readings cost a server: asked for over HTTP with 1,000 hosts, and received in process from 10,000."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.client.client import Client
from orchestrator.core.readings.frame import PERIOD_S, HostFrame, frame_from_dict, frame_to_dict
from orchestrator.core.readings.received import KEPT_FRAMES
from orchestrator.services.readings.kept import STALE_S, KeptReadings
from tests.bench.server_path.site import site
from tests.fakes.fake_world import FakeClock
from tests.fakes.frames import GPU_NUMBERS, gpu_reading

GPUS: Final = 8
GROUP: Final = """\
  - {{name: {name}, count: {count}, gpu_model: L40S, gpus_per_host: 8, vcpus: 128, memory_gib: 1024{more}}}
"""
NUMBERS: Final = {
    **GPU_NUMBERS,
    **{("gpu_nvlink_up", str(link)): 1.0 for link in range(18)},
    **{("gpu_xid_total", str(xid)): 0.0 for xid in (48, 63, 64, 74, 79, 92, 94, 95, 119, 120)},
}
"""Some 35 numbers, as many as a GPU with NVLink has."""
ROUNDS: Final = 3
FILL_S: Final = 120.0
"""Until all hosts are listened to and each has sent its first frame."""


@dataclass
class Asked:
    """GPUs of hosts that send: how many were asked for, and how many of these answers were fresh."""

    gpus: int = 0
    visible: int = 0
    wrong: int = 0
    """GPUs of silent hosts that were shown with numbers."""


def over_http(directory: Path, hosts: int) -> Mapping[str, float]:
    """Of so many hosts one in a hundred is silent and one is slow."""
    some = hosts // 100
    groups = (
        ("live", hosts - 2 * some, ""),
        ("silent", some, ", readings: silent"),
        ("slow", some, ", readings: slow"),
    )
    fleet = "groups:\n" + "".join(GROUP.format(name=name, count=count, more=more) for name, count, more in groups)
    os.environ["VGPUCTL_HOSTS_WATCHED"] = "1024"
    with site(directory, hosts, None, fleet=fleet.replace("{", "{{").replace("}", "}}")) as here:
        here.start()
        with here.client() as client:
            names = [str(host["name"]) for host in client.hosts()]
            _wait_for_all(client, hosts - some)
            asked = Asked()
            began, core = time.monotonic(), here.core_seconds()
            time.sleep(ROUNDS * PERIOD_S)
            idle_core = (here.core_seconds() - core) / (time.monotonic() - began)
            for _ in range(ROUNDS):
                for name in names:
                    _ask(client, name, asked)
            return {
                "visible_within_30s_ratio": asked.visible / asked.gpus,
                "silent_with_numbers": asked.wrong,
                "server_core": idle_core,
                "server_mib": here.rss_mib(),
                "all_hosts_s": _best(client.host_activities),
                "all_gpus_s": _best(client.gpu_activities),
                "top_hosts_s": _best(lambda: here.run("top", "hosts")),
                "top_gpus_s": _best(lambda: here.run("top", "gpus")),
            }


def in_process(hosts: int) -> Mapping[str, float]:
    """Frames as they come off the wire, each host as many as are kept. Processor time per period of ten seconds."""
    clock = FakeClock()
    kept = KeptReadings(clock)
    lines = [json.dumps(frame_to_dict(_frame(host))) for host in range(10)]
    began_mib = _own_mib()
    core = time.process_time()
    for _ in range(KEPT_FRAMES):
        clock.sleep(PERIOD_S)
        for host in range(hosts):
            kept.receive(f"host-{host}", frame_from_dict(json.loads(lines[host % 10])))
    core = time.process_time() - core
    return {"server_core": core / (KEPT_FRAMES * PERIOD_S), "server_mib": _own_mib() - began_mib}


def _frame(host: int) -> HostFrame:
    return HostFrame(0.0, tuple(gpu_reading(f"GPU-{host}-{gpu}", NUMBERS) for gpu in range(GPUS)))


def _wait_for_all(client: Client, sending: int) -> None:
    until = time.monotonic() + FILL_S
    while time.monotonic() < until:
        if sum(host["age_s"] is not None for host in client.host_activities()) >= sending:
            return
        time.sleep(1)


def _ask(client: Client, name: str, asked: Asked) -> None:
    answer = client.host_readings(name)
    read = [gpu for gpu in answer["readings"] if gpu["kind"] == "gpu" and gpu["values"]]
    if name.startswith("silent"):
        asked.wrong += len(read)
        return
    asked.gpus += GPUS
    if answer["age_s"] is not None and answer["age_s"] <= STALE_S:
        asked.visible += len(read)


def _best(ask: Callable[[], object]) -> float:
    """Seconds, of three times the least: other work on the machine only adds."""
    took = []
    for _ in range(3):
        began = time.monotonic()
        ask()
        took.append(time.monotonic() - began)
    return min(took)


def _own_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
