# SPDX-License-Identifier: Apache-2.0
"""``python -m integrations.isvctl SUITE STEP``: one step against the server of the environment; prints one JSON object.

It stays in ``ISV_WORK`` as ``SUITE.STEP.json``. Exit code 0 when the step saw what its checks ask for, else 1; 2 when
it is no step or the environment names no server.
``python -m integrations.isvctl SUITE`` prints the suite's configuration: its steps, in order."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, Final

from integrations.isvctl import control_plane, iam, image_registry, network, observability, security, storage, vm
from integrations.isvctl.site import Site, Unmet
from integrations.isvctl.steps import Output, Step
from vgpuctl import VgpuctlError

SUITES: Final[dict[str, dict[str, Step]]] = {
    "vm": vm.STEPS, "control-plane": control_plane.STEPS, "iam": iam.STEPS, "image-registry": image_registry.STEPS,
    "storage": storage.STEPS, "observability": observability.STEPS, "security": security.STEPS,
    "network": network.STEPS,
}  # fmt: skip
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "network": {"network": {"checks": {"VpcIpConfigCheck": {"auto_assign_ip_mode": "disabled"}}}},
}
"""What the suite lets a provider say of itself, by suite: VMs get no addresses outside their network."""
MARGIN_S: Final = 30
"""What the suite waits longer than a step takes at most."""


def configuration(suite: str) -> dict[str, Any]:
    """As isvctl reads it beside the suite's own file. A step that fails keeps none of the others from being done."""
    steps = [
        {
            "name": name, "phase": step.phase, "timeout": step.timeout_s + MARGIN_S, "continue_on_failure": True,
            "command": f"{sys.executable} -m integrations.isvctl {suite} {name}",
        }
        for name, step in SUITES[suite].items()
    ]  # fmt: skip
    return {
        "version": "1.0",
        "commands": {suite.replace("-", "_"): {"phases": ["setup", "test", "teardown"], "steps": steps}},
        "tests": {"validations": SETTINGS.get(suite, {})},
    }


def output_of(suite: str, name: str, environment: Mapping[str, str]) -> Output:
    """What the step tells. Whatever goes wrong in it is a failure of the step, with the reason."""
    output: Output = {"success": False, "platform": suite.replace("-", "_"), "test_name": name}
    try:
        return output | SUITES[suite][name].act(Site.of(environment))
    except (VgpuctlError, Unmet, TimeoutError, OSError) as error:
        return output | {"error": str(error), "error_type": getattr(error, "code", type(error).__name__)}
    except (AttributeError, LookupError, TypeError, ValueError, SubprocessError) as error:
        traceback.print_exc()
        return output | {"error": f"{type(error).__name__}: {error}", "error_type": "bug"}


def main(words: list[str]) -> int:
    suite, *rest = words or [""]
    if suite not in SUITES or len(rest) > 1 or (rest and rest[0] not in SUITES[suite]):
        print(f"error: no such step: {' '.join(words)}; suites: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    if not rest:
        print(json.dumps(configuration(suite), indent=2))
        return 0
    missing = [name for name in ("ISV_URL", "ISV_CA_FILE", "ISV_TOKEN_FILE", "ISV_WORK") if not os.environ.get(name)]
    if missing:
        print(f"error: {missing[0]} is not set; integrations/isvctl/README.md lists the variables", file=sys.stderr)
        return 2
    output = output_of(suite, rest[0], os.environ)
    told = json.dumps(output)
    Path(os.environ["ISV_WORK"], f"{suite}.{rest[0]}.json").write_text(told)
    print(told)
    return 0 if output["success"] or output.get("skipped") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
