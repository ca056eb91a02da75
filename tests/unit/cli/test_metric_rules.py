# SPDX-License-Identifier: Apache-2.0
"""The shipped rules, by the real promtool: each alert fires on what it is about, and not on what is well."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.catalogue.metric_names import metric_name
from orchestrator.cli.commands.metrics import RULES
from orchestrator.core.readings.quantities import BY_NAME
from tests.fakes.typed import Cli

ROOT = Path(__file__).parents[3]
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
GPU = 'site="s",host="h",gpu="g",model="m"'
MINUTES = 60
SERIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "GpuXidFatal": (
        {f'vgpuctl_gpu_xid_total{{{GPU},xid="79"}}': "0x55 1x20"},
        {f'vgpuctl_gpu_xid_total{{{GPU},xid="79"}}': "1x99"},
    ),
    "GpuFabricFault": (
        {'vgpuctl_findings{code="gpu.fabric_fault"}': "1x99"},
        {'vgpuctl_findings{code="gpu.fault"}': "1x99"},
    ),
    "GpuOnWatch": (
        {'vgpuctl_gpus_health{state="watch",acknowledged="false"}': "1x99"},
        {'vgpuctl_gpus_health{state="watch",acknowledged="true"}': "1x99"},
    ),
    "GpuUnfit": (
        {'vgpuctl_gpus_health{state="quarantined",acknowledged="false"}': "1x99"},
        {'vgpuctl_gpus_health{state="unfit",acknowledged="true"}': "1x99"},
    ),
    "HealthBreakerOpen": ({"vgpuctl_health_breaker_open": "1x99"}, {"vgpuctl_health_breaker_open": "0x99"}),
    "GpuRowRemapPending": (
        {f"vgpuctl_gpu_remap_pending{{{GPU}}}": "1x99"},
        {f"vgpuctl_gpu_remap_pending{{{GPU}}}": "0x99"},
    ),
    "GpuRowRemapFailed": (
        {f"vgpuctl_gpu_remap_failed{{{GPU}}}": "1x99"},
        {f"vgpuctl_gpu_remap_failed{{{GPU}}}": "0x99"},
    ),
    "GpuRecoveryActionNeeded": (
        {f'vgpuctl_gpu_recovery_action{{{GPU},action="gpu_reset"}}': "1x99"},
        {f'vgpuctl_gpu_recovery_action{{{GPU},action="gpu_reset"}}': "0x99"},
    ),
    "GpuEccErrors": (
        {f'vgpuctl_gpu_ecc_errors_total{{{GPU},error="uncorrected"}}': "0x55 1x20"},
        {f'vgpuctl_gpu_ecc_errors_total{{{GPU},error="corrected"}}': "0+1x99"},
    ),
    "GpuHot": (
        {f'vgpuctl_gpu_temperature_celsius{{{GPU},sensor="gpu"}}': "86x99"},
        {f'vgpuctl_gpu_temperature_celsius{{{GPU},sensor="memory"}}': "86x99"},
    ),
    "GpuNearItsLimit": (
        {f"vgpuctl_gpu_temperature_margin_celsius{{{GPU}}}": "2x99"},
        {f"vgpuctl_gpu_temperature_margin_celsius{{{GPU}}}": "30x99"},
    ),
    "GpuClocksLimited": (
        {f'vgpuctl_gpu_clock_limited_seconds_total{{{GPU},reason="thermal"}}': "0+30x99"},
        {f'vgpuctl_gpu_clock_limited_seconds_total{{{GPU},reason="low_utilization"}}': "0+30x99"},
    ),
    "PowerOverBudget": (
        {'vgpuctl_power_budgets_exceeded{scope="rack"}': "1x99"},
        {'vgpuctl_power_budgets_exceeded{scope="rack"}': "0x99"},
    ),
    "PowerLimitsUnknown": (
        {'vgpuctl_power_gpus_silent{scope="site"}': "8x99"},
        {'vgpuctl_power_gpus_silent{scope="site"}': "0x99"},
    ),
    "GpuPcieDowngraded": (
        {f"vgpuctl_gpu_pcie_link_width{{{GPU}}}": "8x99", f"vgpuctl_gpu_pcie_link_width_max{{{GPU}}}": "16x99"},
        {f"vgpuctl_gpu_pcie_link_width{{{GPU}}}": "16x99", f"vgpuctl_gpu_pcie_link_width_max{{{GPU}}}": "16x99"},
    ),
    "FabricManagerDown": (
        {'vgpuctl_findings{code="host.fabric"}': "2x99"},
        {'vgpuctl_findings{code="host.driver_drift"}': "2x99"},
    ),
    "MaintenanceOverran": (
        {'vgpuctl_findings{code="maintenance.overran"}': "2x99"},
        {'vgpuctl_findings{code="host.cordoned"}': "2x99"},
    ),
    "VgpuWithoutReadings": (
        {'vgpuctl_vm_vgpus_without_readings{host="h",vm="v"}': "1x99"},
        {'vgpuctl_vm_vgpus_without_readings{host="h",vm="v"}': "0x99"},
    ),
    "GpuWithoutReadings": (
        {f'vgpuctl_gpu_readings{{{GPU},state="silent"}}': "1x99"},
        {f'vgpuctl_gpu_readings{{{GPU},state="passed_through"}}': "1x99"},
    ),
    "GpuMissing": (
        {'vgpuctl_host_gpus{host="h",state="present"}': "7x99", 'vgpuctl_host_gpus{host="h",state="managed"}': "8x99"},
        {'vgpuctl_host_gpus{host="h",state="present"}': "8x99", 'vgpuctl_host_gpus{host="h",state="managed"}': "8x99"},
    ),
    "GpusBusy": (
        {f"vgpuctl_gpu_utilization_ratio{{{GPU}}}": "0.95x99"},
        {f"vgpuctl_gpu_utilization_ratio{{{GPU}}}": "0.5x99"},
    ),
    "HostWithoutReadings": (
        {'vgpuctl_host_readings_present{host="h"}': "0x99"},
        {
            'vgpuctl_host_readings_present{host="h",instance="listens"}': "1x99",
            'vgpuctl_host_readings_present{host="h",instance="does-not"}': "0x99",
        },
    ),
    "HostClockWrong": (
        {'vgpuctl_host_clock_ahead_seconds{host="h"}': "-90x99"},
        {'vgpuctl_host_clock_ahead_seconds{host="h"}': "-2x99"},
    ),
    "VgpuLicenceMissing": (
        {f'vgpuctl_vgpu_licensed{{{GPU},vm="v"}}': "0x99"},
        {f'vgpuctl_vgpu_licensed{{{GPU},vm="v"}}': "1x99"},
    ),
    "GpusFragmented": (
        {'vgpuctl_gpus_free{model="m",on="in_use"}': "3x99", 'vgpuctl_gpus_free{model="m",on="empty"}': "2x99"},
        {'vgpuctl_gpus_free{model="m",on="in_use"}': "1x99", 'vgpuctl_gpus_free{model="m",on="empty"}': "0x99"},
    ),
    "NothingFits": (
        {'vgpuctl_profile_fits{profile="p"}': "4x20 0x79"},
        {'vgpuctl_profile_fits{profile="p"}': "0x99", 'vgpuctl_profile_fits{profile="q"}': "1x99"},
    ),
    "QuotaNearFull": (
        {'vgpuctl_quota_held_ratio{resource="vcpus"}': "0.95x99"},
        {'vgpuctl_quota_held_ratio{resource="vcpus"}': "0.9x99"},
    ),
    "BackupOld": (
        {"vgpuctl_backup_timestamp_seconds": "-180000x99"},
        {"vgpuctl_backup_timestamp_seconds": "-80000x99"},
    ),
    "BackupFailed": (
        {'vgpuctl_backup_policy_vms{state="failed"}': "1x99"},
        {'vgpuctl_backup_policy_vms{state="failed"}': "0x99", 'vgpuctl_backup_policy_vms{state="good"}': "1x99"},
    ),
    "BackupOverdue": (
        {'vgpuctl_backup_policy_vms{state="overdue"}': "2x99"},
        {'vgpuctl_backup_policy_vms{state="overdue"}': "0x99"},
    ),
    "OperationStuck": (
        {'vgpuctl_operations{kind="create_vm",state="stuck"}': "1x99"},
        {'vgpuctl_operations{kind="create_vm",state="running"}': "1x99"},
    ),
    "HostUnreachable": (
        {'vgpuctl_hosts{state="unreachable"}': "1x99"},
        {'vgpuctl_hosts{state="unreachable"}': "0x99"},
    ),
    "HostQuarantined": ({'vgpuctl_hosts{state="quarantined"}': "1x99"}, {'vgpuctl_hosts{state="ready"}': "1x99"}),
    "RoundsFail": (
        {'vgpuctl_timer_failed_total{timer="observe"}': "0+1x99"},
        {'vgpuctl_timer_failed_total{timer="observe"}': "1x99"},
    ),
    "AnswersFail": (
        {'vgpuctl_http_request_seconds_count{route="r",status="503"}': "0+60x99"},
        {'vgpuctl_http_request_seconds_count{route="r",status="404"}': "0+60x99"},
    ),
    "CertificateEnds": (
        {"vgpuctl_certificate_end_timestamp_seconds": "90000x99"},
        {"vgpuctl_certificate_end_timestamp_seconds": "9000000x99"},
    ),
    "ServerNotScraped": ({'up{job="vgpuctl-hosts"}': "0x99"}, {'up{job="vgpuctl-hosts"}': "1x99"}),
}
"""By alert: series a minute apart on which it fires after an hour, and those on which it does not."""


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, words)], text=True, capture_output=True, check=False)


def test_promtool_takes_the_rules() -> None:
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr


def test_every_alert_was_tried() -> None:
    assert SERIES.keys() == ALERTS.keys()


@pytest.mark.parametrize("fires", [True, False])
def test_an_alert_fires_on_what_it_is_about_and_not_on_what_is_well(fires: bool, tmp_path: Path) -> None:
    tests: list[Any] = []
    for alert, (bad, good) in SERIES.items():
        series = [{"series": name, "values": values} for name, values in (bad if fires else good).items()]
        query = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > 0'
        samples = [{"labels": "{}", "value": 1}] if fires else []
        asked = {"expr": query, "eval_time": f"{MINUTES}m", "exp_samples": samples}
        tests.append({"name": alert, "interval": "1m", "input_series": series, "promql_expr_test": [asked]})
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    tried = promtool("test", "rules", file)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_rules_ask_for_metrics_that_there_are() -> None:
    reference = (ROOT / "docs/reference/metrics.md").read_text()
    known = {metric_name(name) for name in BY_NAME} | set(re.findall(r"`(vgpuctl_[a-z_]+[a-z])", reference))
    known |= {"vgpuctl_http_request_seconds_count"}
    asked = {
        name for group in GROUPS for rule in group["rules"] for name in re.findall(r"\bvgpuctl_[a-z_]+", rule["expr"])
    }
    assert asked <= known


def test_every_alert_has_its_row_that_says_what_to_do_and_every_row_its_alert(cli: Cli) -> None:
    page = (ROOT / "docs/howto/alerts.md").read_text()
    assert set(re.findall(r'<a id="(\w+)"></a>', page)) == {name.lower() for name in ALERTS}
    for name, rule in ALERTS.items():
        assert f'<a id="{name.lower()}"></a>{name} |' in page
        told = cli(*rule["annotations"]["runbook"].split()[1:])
        assert (told.code, [line[:7] for line in told.out.splitlines()]) == (0, ["first: ", "then:  "]), name
        assert not re.search(r"[`\[\]<]", told.out), told.out


def test_the_commands_of_a_row_are_commands(cli: Cli) -> None:
    for name in ALERTS:
        for words in re.findall(r"'vgpuctl ((?:[a-z][a-z-]* ?)+)", cli("metrics", "runbook", name).out):
            assert cli(*words.split(), "--help").code == 0, (name, words)


def test_an_alert_that_there_is_not_is_refused(cli: Cli) -> None:
    refused = cli("metrics", "runbook", "GpuHott")
    assert (refused.code, refused.out) == (4, "")
    assert "did you mean GpuHot?" in refused.err


def test_where_runbooks_are_is_added_to_each_alert(cli: Cli, tmp_path: Path) -> None:
    told = yaml.safe_load(cli("metrics", "rules", "--runbooks", "https://docs.example/a.html").out)
    assert {
        rule["annotations"]["runbook_url"] for group in told["groups"] for rule in group["rules"] if "alert" in rule
    } == {f"https://docs.example/a.html#{name.lower()}" for name in ALERTS}
    for bad in ("docs/alerts.md", "https://x y", 'https://x"y', "https://x\ny", "javascript:x"):
        refused = cli("metrics", "rules", "--runbooks", bad, "--write", str(tmp_path))
        assert (refused.code, list(tmp_path.iterdir())) == (2, []), bad


def test_the_command_writes_the_file(cli: Cli, tmp_path: Path) -> None:
    assert cli("metrics", "rules", "--write", str(tmp_path)).code == 0
    assert (tmp_path / "vgpuctl-rules.yaml").read_text() == RULES.read_text()
    assert cli("metrics", "rules").out == RULES.read_text()
    refused = cli("metrics", "rules", "--write", str(tmp_path / "absent"))
    assert (refused.code, refused.out) == (2, "")
