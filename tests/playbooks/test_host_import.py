# SPDX-License-Identifier: Apache-2.0
"""``host import`` against a real server over services in memory; the inventories are read by the real Ansible."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.running import running_server
from tests.fakes.typed import Cli, Outcome, cli_of
from tests.fakes.world import FINGERPRINT
from tests.playbooks.refused_hosts import HOSTS_THAT_CANNOT_BE


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


@pytest.fixture
def cli(state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return cli_of(state, monkeypatch, capsys)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "id_key"
    path.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    return path


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    return tmp_path / "inventory"


def _import(cli: Cli, inventory: Path, *more: str) -> Outcome:
    return cli("host", "import", "-i", str(inventory), *more)


def _rows(outcome: Outcome) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json.loads(outcome.out)}


def _names(cli: Cli) -> set[str]:
    return {row["name"] for row in json.loads(cli("host", "list", "-o", "json").out)}


def test_group_and_host_variables_say_how_each_host_is_enrolled(cli: Cli, inventory: Path, key: Path) -> None:
    inventory.write_text(
        "web-1\n[a100]\nbig-1.example.com ansible_host=192.0.2.1\nbig-2 ansible_host=192.0.2.2 ansible_port=2222\n"
        f"[a100:vars]\nansible_user=ops\nvgpuctl_gpus=all\nansible_ssh_private_key_file={key}\n"
    )
    planned = _rows(_import(cli, inventory, "--limit", "a100", "--dry-run", "-o", "json"))
    assert planned == {
        "big-1": {"name": "big-1", "address": "192.0.2.1", "port": 22, "user": "ops", "gpus": "all",
                  "provisioning_key": str(key)},
        "big-2": {"name": "big-2", "address": "192.0.2.2", "port": 2222, "user": "ops", "gpus": "all",
                  "provisioning_key": str(key)},
    }  # fmt: skip
    assert {"big-1", "big-2"}.isdisjoint(_names(cli))


def test_a_directory_with_yaml_and_host_vars_is_enrolled_and_again_changes_nothing(
    cli: Cli, inventory: Path, key: Path
) -> None:
    (inventory / "host_vars").mkdir(parents=True)
    (inventory / "hosts.yml").write_text(
        "vgpuctl_hosts:\n  hosts:\n    dir-1:\n    dir-2:\nother:\n  hosts: {web-1: }\n"
    )
    for number in (1, 2):
        (inventory / f"host_vars/dir-{number}.yml").write_text(
            f"ansible_host: 192.0.2.{20 + number}\nvgpuctl_host_key_fingerprint: '{FINGERPRINT}'\n"
        )
    done = _import(cli, inventory, "--provisioning-key", str(key), "-o", "json")
    assert (done.code, {row["result"] for row in _rows(done).values()}) == (0, {"enrolled"})
    assert set(_rows(done)) == {"dir-1", "dir-2"}
    assert "✓ dir-1: enrolled" in done.err
    assert {"dir-1", "dir-2"} <= _names(cli)


def test_a_groups_labels_are_put_on_its_hosts(cli: Cli, inventory: Path, key: Path) -> None:
    inventory.write_text("[canary]\nlabelled-1\n[canary:vars]\nvgpuctl_labels={'ring': 'canary', 'rack': 3}\n")
    assert _import(cli, inventory, "--yes", "--provisioning-key", str(key)).code == 0
    shown = json.loads(cli("host", "show", "labelled-1", "-o", "json").out)
    assert shown["labels"] == {"ring": "canary", "rack": "3"}
    listed = json.loads(cli("inventory").out)
    assert listed["label_ring_canary"] == {"hosts": ["labelled-1"]}
    assert listed["_meta"]["hostvars"]["labelled-1"]["vgpuctl_labels"] == shown["labels"]


def test_a_host_that_is_enrolled_at_that_address_is_left_alone(cli: Cli, inventory: Path, key: Path) -> None:
    inventory.write_text("gpu1 ansible_host=192.0.2.10\n")
    done = _import(cli, inventory, "--provisioning-key", str(key))
    assert (done.code, done.err) == (0, "")
    assert done.out.split() == ["NAME", "ADDRESS", "RESULT", "WHY", "gpu1", "192.0.2.10", "present", "-"]


def test_hosts_that_fail_stop_no_other_and_say_why(cli: Cli, inventory: Path, key: Path) -> None:
    inventory.write_text("fails\nliar vgpuctl_host_key_fingerprint=SHA256:other\nfine\n")
    done = _import(cli, inventory, "--yes", "--provisioning-key", str(key), "-o", "json")
    rows = _rows(done)
    assert {name: row["result"] for name, row in rows.items()} == {
        "fails": "failed", "liar": "failed", "fine": "enrolled",
    }  # fmt: skip
    assert "making the vGPU on gpu1 failed" in json.dumps(rows["fails"]["error"])
    assert "host.key_changed" in json.dumps(rows["liar"]["error"])
    assert done.code == 9
    assert json.loads(done.err.splitlines()[-1])["error"]["message"] == "2 of 3 hosts were not enrolled"


def test_keys_that_nobody_confirmed_enrol_nothing(cli: Cli, inventory: Path, key: Path) -> None:
    inventory.write_text("silent-1\nsilent-2\n")
    done = _import(cli, inventory, "--provisioning-key", str(key))
    assert done.code == 2
    assert f"key of silent-1: {FINGERPRINT}" in done.err
    assert "nobody confirmed the keys of 2 hosts [host.key_not_confirmed]" in done.err
    assert {"silent-1", "silent-2"}.isdisjoint(_names(cli))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a:children]\nb\n[b:children]\na\n", "recursive dependency loop"),
        ("[a\n", "cannot read the inventory"),
        ("", "the inventory has no hosts"),
        ("10.0.0.1\n", "an address is no name for a host"),
        (
            "a ansible_host=192.0.2.1\nb ansible_host=192.0.2.1\n",
            "they have one address, 192.0.2.1 port 22 [inventory.duplicate]: a, b",
        ),
        ("a.x ansible_host=192.0.2.1\na.y ansible_host=192.0.2.2\n", "they have one name, a"),
        (
            "a.x ansible_host=192.0.2.1\na.y ansible_host=192.0.2.1\nb ansible_host=192.0.2.2\n",
            "2 of 3 hosts cannot be taken",
        ),
        ("a.x ansible_host=192.0.2.1\na.y ansible_host=192.0.2.2\n", "[inventory.duplicate]: a.x, a.y"),
        ("-oProxyCommand=x\n", "cannot be taken as they stand"),
        ("GPU_01\n", "host name 'GPU_01' is not allowed; set vgpuctl_name"),
        ("gpu1 ansible_host=192.0.2.99\n", "host gpu1 is enrolled at 192.0.2.10 port 22"),
        ("other ansible_host=192.0.2.10\n", "192.0.2.10 port 22 is enrolled as"),
    ],
)
def test_a_bad_inventory_is_refused_before_anything_is_done(
    cli: Cli, inventory: Path, key: Path, text: str, said: str
) -> None:
    inventory.write_text(text)
    before = _names(cli)
    done = _import(cli, inventory, "--yes", "--provisioning-key", str(key))
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err
    assert _names(cli) == before


def test_each_host_that_cannot_be_taken_is_named_with_the_reason(cli: Cli, inventory: Path, key: Path) -> None:
    """All of them in one inventory, which Ansible reads once."""
    saids = {f"bad-{number}": said for number, said in enumerate(HOSTS_THAT_CANNOT_BE.values())}
    inventory.write_text(
        "".join(f"{name} {variables}\n" for name, variables in zip(saids, HOSTS_THAT_CANNOT_BE, strict=True))
    )
    done = _import(cli, inventory, "--yes", "--provisioning-key", str(key), "-o", "json")
    assert (done.code, done.out) == (2, "")
    error = json.loads(done.err.splitlines()[-1])["error"]
    reasons = {name: reason["message"] for reason in error["reasons"] for name in reason["subjects"]}
    assert {name: said for name, said in saids.items() if said not in reasons.get(name, "")} == {}, reasons
    assert set(saids).isdisjoint(_names(cli))


def test_old_names_and_arguments_of_ssh_count_in_the_order_that_ansible_has(cli: Cli, inventory: Path) -> None:
    inventory.write_text(
        "[gpu]\n"
        "old ansible_ssh_host=192.0.2.11 ansible_ssh_user=ubuntu ansible_ssh_port=2222\n"
        "both ansible_host=192.0.2.12 ansible_ssh_host=192.0.2.13 ansible_user=one ansible_ssh_user=two\n"
        "short ansible_host=192.0.2.14 ansible_ssh_common_args='-p 2222'\n"
        "long ansible_host=192.0.2.15 ansible_ssh_extra_args='-o Port=2200 -o User=ops'\n"
        "alias ansible_host=gpu ansible_ssh_common_args='-o HostName=192.0.2.16'\n"
        "key ansible_host=192.0.2.17 ansible_ssh_args='-l ops -i /etc/keys/gpu'\n"
        "variable-first ansible_host=192.0.2.18 ansible_port=22 ansible_ssh_common_args='-p 2222'\n"
        "template ansible_host='{{ network }}.19' ansible_user=jane.doe\n"
        "name_in_a_hosts_file vgpuctl_name=underscores\n"
        "[gpu:vars]\nnetwork=192.0.2\n"
    )
    planned = _rows(_import(cli, inventory, "--dry-run", "-o", "json"))
    assert {name: (row["user"], row["address"], row["port"]) for name, row in planned.items()} == {
        "old": ("ubuntu", "192.0.2.11", 2222),
        "both": ("two", "192.0.2.13", 22),
        "short": ("root", "192.0.2.14", 2222),
        "long": ("ops", "192.0.2.15", 2200),
        "alias": ("root", "192.0.2.16", 22),
        "key": ("ops", "192.0.2.17", 22),
        "variable-first": ("root", "192.0.2.18", 22),
        "template": ("jane.doe", "192.0.2.19", 22),
        "underscores": ("root", "name_in_a_hosts_file", 22),
    }
    assert planned["key"]["provisioning_key"] == "/etc/keys/gpu"


def test_settings_of_ansible_count_and_a_home_of_whoever_types_does_not(
    cli: Cli, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\nremote_user=site\nremote_port=2022\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host *\n  ProxyJump bastion\n  User me\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(tmp_path / "ansible.cfg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    inventory.write_text("new-1 ansible_host=192.0.2.30\n")
    (row,) = _rows(_import(cli, inventory, "--dry-run", "-o", "json")).values()
    assert (row["user"], row["address"], row["port"]) == ("site", "192.0.2.30", 2022)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ANSIBLE_TRANSPORT", "local", "transport of ansible.cfg or ANSIBLE_TRANSPORT is 'local'"),
        ("ANSIBLE_BECOME_METHOD", "doas", "become_method of ansible.cfg or ANSIBLE_BECOME_METHOD is 'doas'"),
        ("ANSIBLE_ASK_PASS", "True", "ask_pass of ansible.cfg or ANSIBLE_ASK_PASS is 'True'"),
        ("ANSIBLE_BECOME_ASK_PASS", "True", "become_ask_pass of ansible.cfg or ANSIBLE_BECOME_ASK_PASS is 'True'"),
        ("ANSIBLE_CONNECTION_PASSWORD_FILE", "/nonexistent", "The password file /nonexistent was not found"),
    ],
)
def test_a_setting_of_ansible_that_the_server_has_not_is_refused_by_name(
    cli: Cli, inventory: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    inventory.write_text("new-1 ansible_host=192.0.2.30 ansible_user=ops\n")
    done = _import(cli, inventory, "--dry-run")
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_variable_counts_before_the_setting(cli: Cli, inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_TRANSPORT", "local")
    monkeypatch.setenv("ANSIBLE_BECOME_METHOD", "doas")
    inventory.write_text(
        "[gpu]\nroot-1 ansible_user=root\nops-1 ansible_user=ops ansible_become_method=sudo\n"
        "[gpu:vars]\nansible_connection=ssh\n"
    )
    assert set(_rows(_import(cli, inventory, "--dry-run", "-o", "json"))) == {"root-1", "ops-1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANSIBLE_VERBOSITY", "4"), ("ANSIBLE_DEBUG", "True"), ("ANSIBLE_STRATEGY", "mitogen_linear"),
        ("ANSIBLE_ASK_VAULT_PASS", "True"), ("LC_ALL", "C"), ("LC_ALL", "xx_YY.UTF-8"),
    ],
)  # fmt: skip
def test_how_ansible_talks_and_works_elsewhere_changes_nothing(
    cli: Cli, inventory: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    inventory.write_text("new-1 ansible_host=192.0.2.30\n")
    assert _rows(_import(cli, inventory, "--dry-run", "-o", "json"))["new-1"]["address"] == "192.0.2.30"


def test_a_file_of_ssh_that_the_arguments_name_counts_and_a_persons_keys_do_not(
    cli: Cli, inventory: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "ssh.cfg"
    settings.write_text("Host there\n  HostName 192.0.2.77\n  User ops\n  Port 2077\n  IdentityFile /etc/keys/there\n")
    inventory.write_text(f"[gpu]\nthere\nelse\n[gpu:vars]\nansible_ssh_common_args=-F {settings}\n")
    planned = _rows(_import(cli, inventory, "--dry-run", "-o", "json"))
    assert planned["there"] == {
        "name": "there", "address": "192.0.2.77", "port": 2077, "user": "ops", "gpus": "unused",
        "provisioning_key": "/etc/keys/there",
    }  # fmt: skip
    assert (planned["else"]["address"], planned["else"]["provisioning_key"]) == ("else", None)


def test_what_plugins_compose_and_what_is_null_is_as_if_it_was_written_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "all:\n  hosts:\n    a-1: {private_ip: 192.0.2.31, ansible_port: null}\n    b-1: {private_ip: 192.0.2.32}\n"
        "  vars: {ansible_ssh_user: !unsafe ops}\n"
    )
    plugin = tmp_path / "composed.yml"
    plugin.write_text(
        "plugin: ansible.builtin.constructed\nstrict: true\ncompose:\n  ansible_host: private_ip\n"
        "  vgpuctl_gpus: \"'all'\"\n  vgpuctl_labels: \"{'ring': 'canary'}\"\n"
    )
    done = _import(cli, tmp_path / "hosts.yml", "-i", str(plugin), "--dry-run", "-o", "json")
    assert {name: (row["user"], row["address"], row["port"], row["gpus"]) for name, row in _rows(done).items()} == {
        "a-1": ("ops", "192.0.2.31", 22, "all"),
        "b-1": ("ops", "192.0.2.32", 22, "all"),
    }


def test_what_is_encrypted_is_read_with_the_password_and_asked_for_without(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    password, directory = tmp_path / "password", tmp_path / "site"
    password.write_text("a\n")
    (directory / "group_vars").mkdir(parents=True)
    secret = directory / "group_vars/gpu.yml"
    (directory / "hosts").write_text("[gpu]\nsecret-1\n")
    secret.write_text("ansible_host: 192.0.2.40\n")
    vault = ["ansible-vault", "encrypt", "--vault-password-file", str(password)]
    subprocess.run([Path(sys.executable).with_name(vault[0]), *vault[1:], secret], check=True, capture_output=True)
    refused = _import(cli, directory, "--dry-run")
    assert (refused.code, refused.out) == (2, "")
    assert "[inventory.encrypted]" in refused.err
    assert "--vault-password-file FILE" in refused.err
    wrong = directory / "wrong"
    wrong.write_text("another\n")
    refused = _import(cli, directory / "hosts", "--dry-run", "--vault-password-file", str(wrong))
    assert (refused.code, "[inventory.vault_password]" in refused.err) == (2, True)
    wrong.unlink()
    told = _import(cli, directory, "--dry-run", "-o", "json", "--vault-password-file", str(password))
    assert _rows(told)["secret-1"]["address"] == "192.0.2.40"


def test_an_inventory_that_is_not_there_and_a_pattern_without_hosts_are_said(cli: Cli, inventory: Path) -> None:
    assert "[inventory.unreadable]" in _import(cli, inventory).err
    inventory.write_text("a\n")
    assert "no host of the inventory matches 'nobody' [inventory.empty]" in _import(cli, inventory, "-l", "nobody").err


@pytest.mark.parametrize(("words", "said"), [
    (("-i", "", "--limit", "a"), "--inventory names nothing [cli.usage]"),
    (("-i", "{inventory}", "--limit", ""), "--limit names no host [cli.usage]"),
    (("-i", "{inventory}", "--limit", "--export"), "no host of the inventory matches '--export' [inventory.empty]"),
    (("-i", "x" * 5000), "file name too long [inventory.unreadable]"),
])  # fmt: skip
def test_an_option_that_a_variable_left_empty_means_neither_all_hosts_nor_the_directory_one_is_in(
    cli: Cli, inventory: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    inventory.write_text("a ansible_host=192.0.2.1\n")
    monkeypatch.chdir(inventory.parent)
    done = cli("host", "import", "--dry-run", *(word.replace("{inventory}", str(inventory)) for word in words))
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 2


@pytest.mark.parametrize(("name", "text", "said"), [
    ("twice.yml", "all:\n  hosts:\n    a: {ansible_host: 192.0.2.1}\n    a: {ansible_host: 192.0.2.2}\n", "uplicate"),
    ("slip.yml", "gpu:\n  hosts:\n    h1: {ansible_host: 192.0.2.1}\n   bad\n", "YAML parsing failed"),
    ("other.yml", "[gpu, cpu]\n", "YAML inventory has invalid structure"),
    ("none.vgpuctl.yml", "plugin: vgpuctl.cloud.nothere\n", "nothere"),
    ("slip.vgpuctl.yml", "plugin: vgpuctl.cloud.fleet\nsshkey: k\n", "sshkey: no option of vgpuctl.cloud.fleet"),
    ("b.ini", "[vgpuctl_hosts\ngpu-1\n", "not enough values"),
    ("c.ini", "[vgpuctl_hosts:children]\nnobody\n", "undefined group 'nobody'"),
    ("program", "#!/bin/sh\nexit 1\n", "Inventory script returned non-zero exit code 1"),
])  # fmt: skip
def test_the_form_that_an_inventory_has_says_what_is_wrong_with_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(Path("collections").absolute()))
    path = tmp_path / name
    path.write_text(text)
    path.chmod(0o755 if name == "program" else 0o644)
    done = _import(cli, path, "--dry-run")
    assert (done.code, done.out) == (2, "")
    assert "[inventory.unreadable]" in done.err
    assert said in done.err
    assert "host pattern" not in done.err


def test_a_key_file_that_cannot_be_read_is_found_before_any_host_is_touched(cli: Cli, inventory: Path) -> None:
    inventory.write_text("keyless ansible_ssh_private_key_file=/nowhere/key\n")
    assert "[provisioning_key.unreadable]" in _import(cli, inventory, "--yes").err
    assert "keyless" not in _names(cli)


def test_the_example_inventory_can_be_imported_as_it_stands(cli: Cli, key: Path) -> None:
    planned = _rows(_import(cli, Path("inventory/example"), "--dry-run", "-o", "json"))
    assert set(planned) == {"gpu-host-1", "gpu-host-2"}
    assert planned["gpu-host-2"]["gpus"] == "0000:41:00.0,0000:61:00.0"


def test_the_inventory_of_a_site_is_imported_with_its_groups(cli: Cli, key: Path) -> None:
    planned = _rows(_import(cli, Path("inventory/site"), "--dry-run", "-o", "json"))
    assert set(planned) == {"gpu-a1", "gpu-a2", "gpu-l1"}
    assert (planned["gpu-l1"]["port"], planned["gpu-l1"]["gpus"]) == (2222, "0000:41:00.0,0000:61:00.0")
