# SPDX-License-Identifier: Apache-2.0
"""What each step of integrations/isvctl tells of a site, and that none tells of a success without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from integrations.isvctl.__main__ import SUITES, output_of
from tests.fakes.certificate import new_certificate
from tests.integrations.contract import MEMBERS, PROBES
from tests.integrations.simulated import simulated_site

FAILING: Final[dict[str, set[str]]] = {
    "vm": {"component_key_access", "start_instance", "reboot_instance"},
    "control-plane": {"s3_object_lifecycle"},
    "iam": set(),
    "image-registry": set(),
    "storage": {"create_volume", "snapshot_lifecycle", "volume_resize", "volume_persistence"},
    "observability": {"host_nic_network_telemetry", "host_syslogs", "fabric_manager_logs"},
    "security": {"mutual_tls_test", "short_lived_credentials_test"},
    "network": {"dns_test"},
}  # fmt: skip
"""What simulated hosts do not show, or vgpuctl does not have: docs/reference/isv.md has the reasons. Who makes one of
them pass takes it from here and has ``make isv`` write the page."""


NOWHERE: Final = {
    "ISV_URL": "https://127.0.0.1:1", "ISV_IMAGE": "demo", "ISV_PROFILE": "GRID T4-4Q", "ISV_BOARD_PROFILE": "gpu:2",
}  # fmt: skip


def test_each_step_tells_what_the_suite_reads_and_fails_where_something_lacks(tmp_path: Path) -> None:
    with simulated_site(tmp_path) as site:
        told = {suite: {step: output_of(suite, step, site) for step in SUITES[suite]} for suite in SUITES}
        done = _module(["control-plane", "check_api"], site)
    for suite, outputs in told.items():
        failed = {step: output.get("error") for step, output in outputs.items() if not output["success"]}
        assert set(failed) == FAILING[suite], failed
        assert list(outputs) == list(MEMBERS[suite])
        for step, output in outputs.items():
            _judged(suite, step, output)
    assert (done.returncode, json.loads(done.stdout)["success"], done.stderr) == (0, True, "")
    assert Path(site["ISV_WORK"], "control-plane.check_api.json").read_text() == done.stdout.strip()
    secrets = [path.read_text().strip() for path in Path(site["ISV_WORK"]).glob("*.token")]
    assert len(secrets) > 5
    assert not [secret for secret in secrets if secret in json.dumps(told)]


def _judged(suite: str, step: str, output: dict[str, Any]) -> None:
    assert json.loads(json.dumps(output)) == output
    assert set(MEMBERS[suite][step].split()) - set(output) == set(), step
    assert set(PROBES.get(step, "").split()) - set(_probes(output)) == set(), step
    wrong = {name: probe["error"] for name, probe in _probes(output).items() if not probe["passed"]}
    assert all(wrong.values()), step
    assert output["error"] if not output["success"] else not wrong, step


def _probes(output: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = output.get("tests", output.get("operations", {}))
    return found


def test_no_step_and_no_probe_succeeds_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One starts a server of its own."""
    monkeypatch.setattr("orchestrator.client.opening.RETRIES", 0)
    nowhere = NOWHERE | _files(tmp_path)
    told = {
        f"{suite} {step}": output_of(suite, step, nowhere)
        for suite, steps in SUITES.items()
        for step in steps
        if step != "api_endpoint_isolation"
    }
    assert {step: output for step, output in told.items() if output["success"] or "bug" in output.values()} == {}
    assert not [probe for output in told.values() for probe in _probes(output).values() if probe["passed"]]
    reasons = {step: output["error"] for step, output in told.items() if "skipped" not in output}
    known = ("no server answers", "Connection refused", "no such file")
    assert {step: why for step, why in reasons.items() if not any(part in why for part in known)} == {}


def _files(directory: Path) -> dict[str, str]:
    """Trust and a token, of nobody."""
    certificate, _ = new_certificate(directory)
    token = directory / "admin.token"
    token.touch(mode=0o600)
    token.write_text("vgpuctl_of_nobody")
    return {"ISV_CA_FILE": str(certificate), "ISV_TOKEN_FILE": str(token), "ISV_WORK": str(directory)}


def test_a_step_that_fails_prints_its_object_all_the_same(tmp_path: Path) -> None:
    done = _module(["security", "sa_credential_test"], NOWHERE | _files(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["error_type"] == "server.unreachable"


def _module(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("ISV_")}
    return subprocess.run(
        [sys.executable, "-m", "integrations.isvctl", *words], env=usual | environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vm", "fly"], "no such step: vm fly"),
        (["moon"], "no such step: moon"),
        (["vm", "teardown"], "ISV_URL is not set"),
    ],
)
def test_what_is_no_step_is_refused(words: list[str], said: str) -> None:
    done = _module(words, {})
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_suites_configuration_has_its_steps_in_order() -> None:
    done = _module(["image-registry"], {})
    (commands,) = json.loads(done.stdout)["commands"].values()
    assert [step["name"] for step in commands["steps"]] == list(SUITES["image-registry"])
    assert {step["phase"] for step in commands["steps"]} <= set(commands["phases"])
    assert all(step["continue_on_failure"] for step in commands["steps"])
