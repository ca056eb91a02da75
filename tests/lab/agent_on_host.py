# SPDX-License-Identifier: Apache-2.0
"""An agent of the test's own on a lab host, beside any enrolled one: the shipped file under the host's bare python3,
reached through the host's real sshd with a forced command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.agent.build_zipapp import build_agent
from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction
from orchestrator.core.hosts.host import Host
from tests.lab.conftest import lab

SITE = "agent-test"
HOME = "/var/lib/agent-test"
_MARK = "agent-test-key"

_START = f"""
cd {HOME}
nohup /usr/bin/python3 agent.pyz serve --config config.json --socket {HOME}/agent.sock >log 2>&1 </dev/null &
echo $! >pid
for i in $(seq 1200); do [ -S agent.sock ] && exit 0; sleep 0.1; done
cat log; exit 1
"""
_STOP = f"""
cd {HOME} || exit 0
kill $(cat pid) && while kill -0 $(cat pid) 2>/dev/null; do sleep 0.1; done
sed -i /{_MARK}/d /root/.ssh/authorized_keys
rm -rf {HOME}
"""


def _on(name: str, command: str, *, stdin: bytes) -> None:
    subprocess.run([sys.executable, "-m", "lab", "ssh", name, command], input=stdin, check=True, timeout=300)


@dataclass(frozen=True)
class AgentOnHost:
    name: str
    link: SshHostLink
    host: Host

    def shell(self, command: str) -> str:
        return lab("ssh", self.name, command)

    def perform(self, action: HostAction, *, attempt: int = 1) -> ActionResult:
        return self.link.perform(
            self.host, action, FencingToken(site=SITE, epoch=1, operation="test", attempt=attempt)
        )  # fmt: skip

    def log(self) -> str:
        return self.shell(f"cat {HOME}/log")


@contextmanager
def agent_on(name: str, scratch: Path) -> Iterator[AgentOnHost]:
    """``name``: a lab host that runs."""
    found = next(row for row in json.loads(lab("status", "-o", "json")) if row["name"] == name)
    package, key = scratch / "agent.pyz", scratch / f"{name}-key"
    build_agent(package)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", _MARK, "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    config = json.dumps({"site": SITE, "epoch": 1, "storage": f"{HOME}/storage"})
    forced = f'restrict,command="/usr/bin/python3 {HOME}/agent.pyz relay {HOME}/agent.sock" {public}'
    _on(name, f"mkdir -p {HOME} && cat > {HOME}/agent.pyz", stdin=package.read_bytes())
    _on(name, f"chmod 711 {HOME} && cat > {HOME}/config.json", stdin=config.encode())
    _on(name, "cat >> /root/.ssh/authorized_keys", stdin=f"{forced}\n".encode())
    lab("ssh", name, _START)
    host = Host(
        name=name, address=found["address"], port=found["port"], provisioning_user="root",
        host_key=" ".join(found["known_host_line"].split()[1:3]), state="ready", state_reason=None,
        cordoned=False, machine_id=None, epoch=1, managed_gpus=(), last_seen_at=None,
    )  # fmt: skip
    link = SshHostLink(site=SITE, key_file=key, user="root")
    try:
        yield AgentOnHost(name, link, host)
    finally:
        link.close()
        lab("ssh", name, _STOP)
