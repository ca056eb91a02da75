# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.adapters.state.keys import HostKeyFiles, agent_key, settle_site_key, write_private
from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.sim.in_memory import new_host
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY

NAME = "h" * 63
Opened = Callable[[bytes], Store]


@pytest.fixture(params=["sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """The same database by any number of controllers."""
    url = f"sqlite:///{tmp_path / 'k.sqlite'}"
    if request.param == "postgresql":
        url = str(request.getfixturevalue("postgres").database())
    made: list[Store] = []

    def one(key: bytes) -> Store:
        made.append(Store(url, key=key, new_site="site"))
        return made[-1]

    yield one
    for store in made:
        store.close()


def private_key() -> str:
    return (
        Ed25519PrivateKey.generate()
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        .decode()
    )


def add(store: Store, keys: HostKeyFiles, name: str, text: str) -> None:
    with store.begin() as tx:
        tx.hosts.add(new_host(name, f"{name}.test", None, (), 0.0))
        keys.put(tx, name, text)


def test_a_host_added_at_one_controller_can_be_provisioned_by_another(opened: Opened, tmp_path: Path) -> None:
    one, other = opened(KEY), opened(KEY)
    text = private_key()
    add(one, HostKeyFiles(tmp_path / "a", one), NAME, text)
    path = HostKeyFiles(tmp_path / "b", other).path(NAME)
    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_key_of_a_host_that_was_added_again_elsewhere_is_the_new_one(opened: Opened, tmp_path: Path) -> None:
    one, other = opened(KEY), opened(KEY)
    here, there = HostKeyFiles(tmp_path / "a", one), HostKeyFiles(tmp_path / "b", other)
    add(one, here, "h", private_key())
    there.path("h")
    text = private_key()
    with one.begin() as tx:
        here.put(tx, "h", text)
    assert there.path("h").read_text() == text
    with one.begin() as tx:
        tx.hosts.remove("h")
        here.remove(tx, "h")
    with pytest.raises(Fatal) as missing:
        there.path("h")
    assert missing.value.code == "host.key_missing"
    HostKeyFiles(tmp_path / "b", other)
    assert list((tmp_path / "b").iterdir()) == []


def test_what_is_no_key_is_refused_and_not_kept(opened: Opened, tmp_path: Path) -> None:
    store = opened(KEY)
    with pytest.raises(InvalidInput):
        add(store, HostKeyFiles(tmp_path / "a", store), "h", "nonsense")
    with store.read() as tx:
        assert (tx.hosts.list(), tx.secrets.ids()) == ((), ())


def test_key_files_of_an_older_version_are_taken_into_the_database(opened: Opened, tmp_path: Path) -> None:
    store = opened(KEY)
    with store.begin() as tx:
        tx.hosts.add(new_host("h", "h.test", None, (), 0.0))
    file = tmp_path / "a" / "h" / "provisioning_key"
    file.parent.mkdir(parents=True)
    write_private(file, private_key().encode())
    text = file.read_text()
    HostKeyFiles(tmp_path / "a", store)
    assert HostKeyFiles(tmp_path / "b", store).path("h").read_text() == text


def test_all_controllers_show_the_agents_one_key_and_the_one_in_use_wins(opened: Opened, tmp_path: Path) -> None:
    """Hosts know the key of the controller that was there first; a key that was never theirs is not lost either."""
    own = private_key()
    (tmp_path / "b").write_text(own)
    first = agent_key(tmp_path / "a", opened(KEY))
    assert agent_key(tmp_path / "b", opened(KEY)) == first
    assert (tmp_path / "b").read_text() == (tmp_path / "a").read_text() != own
    assert (tmp_path / "b.replaced").read_text() == own


def test_an_agent_key_that_hosts_know_becomes_the_sites(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(private_key())
    before = (tmp_path / "a").read_text()
    agent_key(tmp_path / "a", opened(KEY))
    agent_key(tmp_path / "b", opened(KEY))
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == before


def test_a_controller_with_another_site_key_is_refused_and_its_new_key_is_not_kept(
    opened: Opened, tmp_path: Path
) -> None:
    path = tmp_path / "database_key"
    settle_site_key(opened(KEY), path, drawn=False)
    settle_site_key(opened(KEY), path, drawn=False)
    write_private(path, Fernet.generate_key())
    for drawn in (False, True):
        with pytest.raises(Conflict) as refused:
            settle_site_key(opened(Fernet.generate_key()), path, drawn=drawn)
        assert refused.value.code == "serve.other_key"
        assert path.exists() is not drawn


def test_a_database_of_an_older_version_knows_its_key_by_any_secret(opened: Opened, tmp_path: Path) -> None:
    with opened(KEY).begin() as tx:
        tx.secrets.put("user-data", "#cloud-config")
    with pytest.raises(Conflict):
        settle_site_key(opened(Fernet.generate_key()), tmp_path / "key", drawn=False)
    settle_site_key(opened(KEY), tmp_path / "key", drawn=False)
