# SPDX-License-Identifier: Apache-2.0
"""Tells Docker of NVIDIA's runtime and writes the CDI specification of the guest's GPUs, both by nvidia-ctk.

Runs in the guest, under any Python that Ansible supports there. Docker is restarted when its configuration has changed,
and when it runs without the runtime that its configuration has: an earlier run was cut off before the restart.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_containers
short_description: Keeps Docker and CDI told of NVIDIA's GPUs
description: A failure begins with its code, as C([guest.containers_failed] text).
author: vgpuctl
options:
  root: {description: Below which Docker's configuration and CDI's are., type: path, default: /}
"""

LONGEST = 300


class Containers:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.daemon = Path(module.params["root"]) / "etc/docker/daemon.json"
        self.spec = Path(module.params["root"]) / "etc/cdi/nvidia.yaml"

    def call(self, *command: str) -> str:
        """Its output. What it complains of ends the run."""
        code, out, err = self.module.run_command(list(command))
        if code != 0:
            said = (err or out).strip()[-LONGEST:]
            self.module.fail_json(msg=f"[guest.containers_failed] {' '.join(command[:3])} failed: {said}", stderr=err)
        return str(out)

    def told_docker(self) -> bool:
        """Whether that changed anything."""
        before = _json(self.daemon)
        self.daemon.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.call("nvidia-ctk", "runtime", "configure", "--runtime=docker", f"--config={self.daemon}")
        changed = _json(self.daemon) != before
        runtimes = self.module.run_command(["docker", "info", "--format", "{{json .Runtimes}}"])[1]
        if changed or '"nvidia"' not in runtimes:
            self.call("systemctl", "restart", "docker.service")
            return True
        return False

    def wrote_spec(self) -> bool:
        """Whether it is another than before."""
        spec = self.call("nvidia-ctk", "cdi", "generate")
        if _text(self.spec) == spec:
            return False
        self.spec.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = Path(self.module.tmpdir) / "nvidia.yaml"
        fresh.write_text(spec)
        fresh.chmod(0o644)
        self.module.atomic_move(str(fresh), str(self.spec))
        return True

    def version(self, *command: str) -> str | None:
        found = re.search(r"version (\d[0-9A-Za-z.+~-]*)", self.call(*command))
        return found[1] if found else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


def _json(path: Path) -> object:
    try:
        return json.loads(_text(path) or "null")
    except ValueError:
        return None


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}})
    containers = Containers(module)
    changed = [containers.told_docker(), containers.wrote_spec()]
    module.exit_json(
        changed=any(changed),
        docker=containers.version("docker", "--version"),
        container_toolkit=containers.version("nvidia-ctk", "--version"),
    )


if __name__ == "__main__":
    main()
