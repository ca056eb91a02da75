# SPDX-License-Identifier: Apache-2.0
"""How long the agent takes to tell all of a host with eight GPUs, against the bare calls of NVML.

The bare side is a small C program on the host (query.c) that asks NVML for what ``nvidia-smi -q -x`` tells and prints
it, run over an SSH connection that stands, as the agent's does. Both in turn, in one run; what the agent finds
besides (vGPU types, virtual functions, VMs, networks, disks) is in its time.
``python -m tests.bench.discovery`` writes build/bench/discovery.json.
"""

from __future__ import annotations

import base64
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko

from tests.bench.placement.rows import keep, read, rows_of, table
from tests.lab.agent_on_host import HOME, AgentOnHost, agent_on
from tests.lab.conftest import LabHost, of_scenario

REPORT = Path("build/bench/discovery.json")
SCENARIO = "h100-hgx"
ROUNDS = 15
_SOURCE = Path(__file__).with_name("query.c")
_PROGRAM = "/run/bench-query"
_COUNT = f"""
import sys
sys.path.insert(0, "{HOME}/agent.pyz")
import pynvml
calls, found = 0, pynvml._nvmlGetFunctionPointer
def counted(name):
    global calls
    calls += 1
    return found(name)
pynvml._nvmlGetFunctionPointer = counted
from orchestrator.agent.nvml.reading import Nvml
assert len(Nvml().read().gpus) == 8
print(calls)
"""
"""Every call of a function of NVML looks the function up first."""


@contextmanager
def _connection(host: LabHost) -> Iterator[paramiko.SSHClient]:
    client = paramiko.SSHClient()
    kind, key = host.known_host_line.split()[1:3]
    known = paramiko.RSAKey if kind == "ssh-rsa" else paramiko.Ed25519Key
    name = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
    client.get_host_keys().add(name, kind, known(data=base64.b64decode(key)))
    client.connect(
        host.address, host.port, host.user, key_filename=host.key_file, allow_agent=False, look_for_keys=False
    )
    try:
        yield client
    finally:
        client.close()


def _query(client: paramiko.SSHClient) -> str:
    _, out, _ = client.exec_command(_PROGRAM)
    text = out.read().decode()
    assert text.count("<gpu ") == 8, text
    return text


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _measure(agent: AgentOnHost, host: LabHost) -> dict[str, float]:
    host.send(_SOURCE, f"{_PROGRAM}.c")
    host.run(f"gcc -O1 -w -o {_PROGRAM} {_PROGRAM}.c -ldl")
    ours: list[float] = []
    bare: list[float] = []
    with _connection(host) as client:
        said = _query(client)
        assert len(agent.link.observe(agent.host).gpus) == 8
        for _ in range(ROUNDS):
            bare.append(_seconds(lambda: _query(client)))
            ours.append(_seconds(lambda: agent.link.observe(agent.host)))
    return {
        "seconds": statistics.median(ours),
        "nvml_calls": float(host.run(f"/usr/bin/python3 - <<'PY'\n{_COUNT}\nPY")),
        "bare_seconds": statistics.median(bare),
        "bare_nvml_calls": float(said.partition("<calls>")[2].partition("<")[0]),
        "ratio_to_nvml": statistics.median(ours) / statistics.median(bare),
    }


def main() -> int:
    with (
        contextmanager(of_scenario)(SCENARIO) as host,
        tempfile.TemporaryDirectory() as scratch,
        agent_on(SCENARIO, Path(scratch)) as agent,
    ):
        values = _measure(agent, host)
    keep(rows_of("discovery", SCENARIO, "vgpuctl", values), REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
