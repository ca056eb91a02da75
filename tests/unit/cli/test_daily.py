# SPDX-License-Identifier: Apache-2.0
"""What somebody types all day: which VMs, in which order, whose, how many at once, and what happened to them."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.cli.ages import show_time
from orchestrator.cli.commands.doctor import COLUMNS as DOCTOR
from orchestrator.cli.commands.host_views import COLUMNS, details
from orchestrator.cli.commands.profile import ALL_COLUMNS
from orchestrator.cli.commands.vm_views import details as vm_details
from orchestrator.client.contexts import ClientContext, Contexts, path, save
from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("daily")) as directory:
        yield directory


@pytest.fixture
def vms(cli: Cli) -> Iterator[None]:
    for name, label in (("vm-10", "team=a"), ("vm-2", "team=b"), ("vm-1", "team=a")):
        assert cli("create-vm", name, "--profile", "t4-small", "--label", label).code == 0
    assert cli("stop-vm", "vm-2").code == 0
    yield
    assert cli("delete-vm", *cli("ls", "-o", "name").out.split()).code == 0


def names(cli: Cli, *words: str) -> list[str]:
    done = cli("list-vms", "-o", "name", *words)
    assert done.code == 0, done.err
    return done.out.split()


@pytest.mark.usefixtures("vms")
def test_lists_are_filtered_and_sorted(cli: Cli) -> None:
    assert names(cli) == ["vm-1", "vm-10", "vm-2"]
    assert names(cli, "--sort", "name") == ["vm-1", "vm-2", "vm-10"]
    assert names(cli, "--sort", "-name") == ["vm-10", "vm-2", "vm-1"]
    assert names(cli, "--sort", "memory_mib", "-l", "team=a") == ["vm-1", "vm-10"]
    assert names(cli, "--state", "stopped") == ["vm-2"]
    assert names(cli, "-l", "team!=a", "--host", "gpu1", "--profile", "t4-small") == ["vm-2"]
    assert cli("list-vms", "--host", "gpu1", "--state", "lost", "-o", "table").out == "no such VMs\n"


def test_hosts_are_filtered_by_state(cli: Cli) -> None:
    def hosts(state: str) -> str:
        return cli("host", "list", "--state", state, "-o", "name").out.strip()

    assert (hosts("ready"), hosts("cordoned"), hosts("unreachable"), hosts("other-agent")) == ("gpu1", "", "", "")
    assert cli("host", "cordon", "gpu1").code == 0
    assert hosts("cordoned") == "gpu1"
    assert cli("host", "uncordon", "gpu1").code == 0


@pytest.mark.parametrize(
    "words,code",
    [
        (("list-vms", "--host", "gpu2"), "host.unknown"),
        (("list-vms", "--profile", "t4-smal"), "profile.unknown"),
        (("list-vms", "--label", "team=a"), "cli.usage"),
        (("gpu", "map", "--host", "gpu2"), "host.unknown"),
        (("token", "list", "--tenant", "nope"), "tenant.unknown"),
        (("export", "--tenant", "nope"), "tenant.unknown"),
        (("events", "nobody"), "vm.unknown"),
        (("operation", "list", "--about", "default/nobody"), "operation.subject_unknown"),
        (("audit", "list", "--about", "default/nobody"), "audit.subject_unknown"),
        (("audit", "list", "--who", "nobody"), "audit.actor_unknown"),
        (("operation", "list", "--kind", "creat_vm"), "operation.kind_unknown"),
    ],
)
@pytest.mark.usefixtures("vms")
def test_a_list_of_what_does_not_exist_is_an_error_and_not_empty(cli: Cli, words: tuple[str, ...], code: str) -> None:
    done = cli(*words)
    assert done.code in {2, 4}
    assert done.out == ""
    assert f"[{code}]" in done.err.splitlines()[0]


def test_a_vm_that_doctor_has_found_something_of_is_shown_with_it(cli: Cli) -> None:
    assert cli("create-vm", "later", "--profile", "t4-small").code == 0
    problem = next(line for line in cli("show-vm", "later").out.splitlines() if line.startswith("problem"))
    assert problem.split(maxsplit=1)[1] == "shut off (vm.not_running)"
    assert "problem" not in json.loads(cli("show-vm", "later", "-o", "json").out)
    assert cli("delete-vm", "later").code == 0


def test_a_protected_vm_is_deleted_when_somebody_says_that_it_is_not(cli: Cli) -> None:
    assert cli("create-vm", "kept", "--profile", "t4-small", "--protect").code == 0
    assert ["protected", "yes"] in [line.split() for line in cli("show-vm", "kept").out.splitlines()]
    refused = cli("delete-vm", "kept", "--yes")
    assert (refused.code, refused.out) == (5, "")
    assert "[vm.protected]" in refused.err
    hint = re.search("hint: 'vgpuctl (.*)'", refused.err)
    assert hint is not None
    assert cli("show-vm", "kept", "-o", "jsonpath=.state").out == "running\n"
    assert cli("vm", "set", "kept", "--label", "a=b", "-o", "jsonpath=.protected").out == "true\n"
    assert cli(*hint[1].split(), "-o", "jsonpath=.labels.a").out == "b\n"
    assert cli("delete-vm", "kept", "--yes").code == 0


@pytest.mark.usefixtures("vms")
def test_csv_has_exact_values_where_people_read_rounded_ones(cli: Cli) -> None:
    (vm, *_) = csv.DictReader(cli("ls", "-o", "csv").out.splitlines())
    assert (int(vm["MEMORY"]) % 2**20, vm["LEASE END"]) == (0, "")
    assert datetime.fromisoformat(vm["AGE"]).tzinfo is not None
    (event, *_) = csv.DictReader(cli("events", "vm-1", "-o", "csv").out.splitlines())
    assert float(event["TOOK"]) >= 0.0
    image = next(csv.DictReader(cli("image", "list", "-o", "csv").out.splitlines()))
    assert [int(image["SIZE"]), int(image["DISK"])] == [30 * 2**20, 2**28]


@pytest.mark.usefixtures("vms")
def test_a_list_is_printed_in_every_way(cli: Cli) -> None:
    assert cli("ls", "-o", "csv", "-l", "team=b").out.splitlines()[1].startswith("vm-2,default,stopped,t4-small,gpu1,")
    assert cli("ls", "-o", "jsonpath=[*].devices[0].gpu").out.split() == ["0000:41:00.0"] * 3
    assert cli("ls", "-o", "jsonpath=.[0].devices[0].gpu").out == "0000:41:00.0\n"
    assert cli("ls", "-o", "jsonpath={.labels.team}").out.split() == ["a", "a", "b"]
    assert cli("show-vm", "vm-1", "-o", "jsonpath=.state").out == "running\n"
    assert cli("show-vm", "vm-1", "-o", "name").out == "vm-1\n"
    assert "team=a" in cli("ls", "-o", "wide").out
    assert json.loads(cli("ls", "-o", "json").out)[0]["labels"] == {"team": "a"}


@pytest.mark.parametrize(
    "words,code",
    [
        (("ls", "-o", "xml"), "cli.output"),
        (("ls", "-o", "jsonpath=name"), "cli.jsonpath"),
        (("show-vm", "vm-1", "-o", "jsonpath=.nmae"), "cli.jsonpath"),
        (("ls", "--sort", "nmae"), "cli.sort"),
        (("ls", "-l", "=x"), "label.selector_invalid"),
        (("ls", "--tenant", "a", "-A"), "cli.usage"),
        (("vm", "set", "vm-1"), "cli.nothing_to_set"),
        (("operation", "list", "--state", "over"), "cli.usage"),
    ],
)
@pytest.mark.usefixtures("vms")
def test_a_question_that_is_none_is_one_line(cli: Cli, words: tuple[str, ...], code: str) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert f"[{code}]" in done.err.splitlines()[0]


@pytest.mark.usefixtures("vms")
def test_several_vms_are_stopped_by_one_command_and_one_that_is_not_there_keeps_none_back(cli: Cli) -> None:
    done = cli("stop-vm", "vm-1", "nobody", "vm-10")
    assert (done.code, done.out) == (4, "vm-1 is stopped\nvm-10 is stopped\n")
    assert "1 of 3 VMs could not be done [vm.partial]" in done.err
    assert [line for line in done.err.splitlines() if line.endswith(":")] == ["vm-1:", "vm-10:"], "whose steps follow"
    assert cli("start-vm", "vm-1", "vm-10", "-o", "jsonpath=.state").out == "running\nrunning\n"


@pytest.mark.usefixtures("vms")
def test_what_a_console_wrote_is_printed_without_what_a_terminal_would_obey(cli: Cli) -> None:
    """vm-2 is stopped."""
    done = cli("console", "vm-2", "--log")
    assert (done.code, done.out) == (0, "vm-2    boots\\x07\n\xe9 login: \n")
    assert "\x1b[1mvm-2\x1b[0m\tboots\x07\r\n" in cli("console", "vm-2", "--log", "--raw").out
    assert (cli("console", "vm-2", "--raw").code, cli("console", "nobody", "--log").code) == (2, 4)


@pytest.mark.usefixtures("vms")
def test_ages_are_told_by_the_servers_clock(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cli("show-vm", "vm-1", "-o", "table").out
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 400 * 86400)
    assert cli("show-vm", "vm-1", "-o", "table").out == before


@pytest.mark.usefixtures("vms")
def test_what_happened_to_a_vm_is_told_also_when_it_is_gone(cli: Cli) -> None:
    assert cli("restart-vm", "vm-1", "--force").code == 0
    assert cli("rm", "vm-1").code == 0
    told = cli("events", "vm-1", "-o", "jsonpath=.kind").out.split()
    assert told[:3] == ["delete_vm", "restart_vm", "create_vm"]
    about = cli("operation", "list", "--about", "default/vm-1", "-o", "jsonpath=.subject_name").out.split()
    assert set(about) == {"default/vm-1"}


@pytest.mark.usefixtures("vms")
def test_a_vm_gets_another_name_and_keeps_its_history(cli: Cli) -> None:
    assert cli("rename-vm", "vm-2", "VM").code == 2
    assert "[vm.running]" in cli("rename-vm", "vm-1", "vm-3").err
    assert "[vm.exists]" in cli("rename-vm", "vm-2", "vm-1").err
    assert cli("rename-vm", "vm-2", "vm-3", "-o", "name").out == "vm-3\n"
    assert names(cli, "--state", "stopped") == ["vm-3"]
    assert cli("show-vm", "vm-2").code == 4
    told = cli("events", "vm-3", "-o", "jsonpath=.kind").out.split()
    assert told[-3:] == ["rename_vm", "stop_vm", "create_vm"]


@pytest.mark.usefixtures("vms")
def test_labels_are_set_and_taken_away(cli: Cli) -> None:
    assert cli("vm", "set", "vm-1", "--label", "gpu=yes", "--unlabel", "team").code == 0
    assert cli("show-vm", "vm-1", "-o", "jsonpath=.labels").out == '{"gpu": "yes"}\n'


def test_the_tenant_is_named_by_a_variable_or_the_context(
    cli: Cli, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("tenant", "create", "red").code == 0
    assert cli("whoami", "-o", "jsonpath=.tenant").out == "default\n"
    monkeypatch.setenv("VGPUCTL_TENANT", "red")
    assert cli("create-vm", "train", "--profile", "t4-small", "-o", "jsonpath=.tenant").out == "red\n"
    assert names(cli) == ["train"]
    monkeypatch.delenv("VGPUCTL_TENANT")
    assert cli("show-vm", "train").code == 4
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("VGPUCTL_CONTEXT", "here")
    save(path(), Contexts().added(ClientContext(name="here", state=str(state), tenant="red")))
    assert cli("delete-vm", "train").code == 0
    assert cli("whoami", "-o", "jsonpath=.tenant").out == "red\n"


def test_a_token_is_about_the_only_tenant_it_has(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cli("tenant", "create", "red").code == 0
    kept = tmp_path / "token"
    assert cli("token", "create", "--tenant", "red", "--name", "ci", "--save", str(kept)).code == 0
    monkeypatch.setenv("VGPUCTL_TOKEN_FILE", str(kept))
    assert cli("whoami", "-o", "jsonpath=.tenant").out == "red\n"
    assert cli("create-vm", "train", "--profile", "t4-small", "-o", "jsonpath=.tenant").out == "red\n"
    assert cli("delete-vm", "train").code == 0
    monkeypatch.delenv("VGPUCTL_TOKEN_FILE")
    listed = json.loads(cli("token", "list", "--tenant", "red", "-o", "json").out)[-1]
    assert listed["name"] == "ci"
    assert listed["last_used_at"] is not None


def test_words_of_other_tools_and_slips_of_the_finger_are_understood(cli: Cli) -> None:
    assert cli("host", "ls", "-o", "name").out == "gpu1\n"
    assert cli("host", "describe", "gpu1").code == 0
    assert "did you mean list" in cli("host", "lst").err
    assert "did you mean show-vm" in cli("sho-vm", "x").err
    assert cli("--version").out.startswith("vgpuctl 0.1.0")
    assert cli("explain", "--profile", "t4-small", "--host", "other").code == 8
    for command in (("explain", "-p", "t4-small"), ("capacity",)):
        for address in ("10.0.0.20", ""):
            refused = cli(*command, "--network", f"blue,ip={address}")
            assert (refused.code, "cli.usage" in refused.err) == (2, True), refused.err


def test_a_host_with_another_servers_agent_says_what_to_do(cli: Cli) -> None:
    host = json.loads(cli("host", "show", "gpu1", "-o", "json").out)
    assert not any("upgrade-agent" in line for line in details(host))
    assert any("agent      0.1.0 (not this server's" in line for line in details({**host, "agent_differs": True}))
    (state,) = (column for column in COLUMNS if column.header == "STATE")
    assert state.text({**host, "agent_differs": True, "cordoned": True}) == "ready (cordoned, other agent)"


def test_agents_of_several_hosts_are_upgraded_by_one_command(cli: Cli) -> None:
    done = cli("host", "upgrade-agent", "gpu1", "nobody")
    assert (done.code, done.out) == (4, "gpu1 is ready\n")
    assert "1 of 2 hosts could not be done [host.partial]" in done.err
    assert cli("host", "list", "--state", "other-agent").out == "no such hosts\n"


def test_a_repair_that_was_begun_is_told_by_as_many_digits_as_commands_take() -> None:
    (repair,) = (column for column in DOCTOR if column.header == "REPAIR")
    assert repair.text({"operation": "9e0cb94e-9ce1-4c34-a6d6-c848b1ed1cbb"}) == "begun: 9e0cb94e"


def test_a_profile_that_no_host_keeps_cpus_for_says_so() -> None:
    (why,) = (column for column in ALL_COLUMNS if column.header == "WHY NOT")
    profile = {"unsupported": [], "available": False, "host_labels": {}, "cpu": "pinned"}
    assert why.text(profile) == "no host offers it and keeps CPUs for VMs that have theirs alone"


PLANNED = {"id": "u", "moves": False, "act": "upgrade", "reason": "", "began_at": None, "ends_by": None}


@pytest.mark.parametrize(("policy", "opens", "said"), [
    ("stop", None, "in its host's turn, and started again"),
    ("22:00-05:00", "2026-11-23T22:00:00Z", "in 22:00-05:00 UTC (opens 2026-11-23"),
    ("wait", None, "which waits until its users stop it"),
])  # fmt: skip
def test_a_stop_that_is_planned_for_a_vm_is_shown_with_when_it_may_be(
    cli: Cli, vms: None, policy: str, opens: str | None, said: str
) -> None:
    vm = json.loads(cli("show-vm", "vm-1", "-o", "json").out)
    assert vm["maintenance"] is None
    shown = vm_details({**vm, "maintenance": {**PLANNED, "policy": policy, "opens_at": opens}})
    assert any(line.startswith("maintenance") and said in line for line in shown)
    assert not any("maintenance" in line for line in vm_details(vm))


def test_a_fault_of_its_gpu_is_shown_to_a_tenant_and_to_operators_as_a_problem(cli: Cli, vms: None) -> None:
    vm = {**json.loads(cli("show-vm", "vm-1", "-o", "json").out), "gpu_fault": "its GPU has a fault"}
    (line,) = [one for one in vm_details({**vm, "host": None}) if one.startswith("GPU fault")]
    assert "its GPU has a fault" in line
    assert not any(one.startswith("GPU fault") for one in vm_details(vm))


def test_what_was_done_to_a_thing_is_told_by_its_name(cli: Cli) -> None:
    assert cli("create-vm", "vm-9", "--profile", "t4-small").code == 0
    assert cli("volume", "create", "data", "--size", "1GiB").code == 0
    assert cli("volume", "delete", "data", "--yes", "-o", "name").out == "data\n"
    assert cli("stop-vm", "vm-9", "-o", "name").out == "vm-9\n"
    assert cli("delete-vm", "vm-9", "-o", "name").out == "vm-9\n"


@pytest.mark.parametrize(("seconds", "words"), [(-90, "90s ago"), (2, "now"), (7200, "in 120m")])
def test_what_just_ended_by_another_clock_ended_now(monkeypatch: pytest.MonkeyPatch, seconds: int, words: str) -> None:
    at = datetime(2026, 12, 1, tzinfo=UTC)
    monkeypatch.setattr("orchestrator.cli.ages.now", at.timestamp)
    assert show_time((at + timedelta(seconds=seconds)).isoformat()).endswith(f"UTC ({words})")
