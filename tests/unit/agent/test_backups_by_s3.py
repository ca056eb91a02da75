# SPDX-License-Identifier: Apache-2.0
"""Backups in a bucket, with the real restic: what its storage checks of restic's requests it checks of the agent's."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.images.bucket import Objects, signed
from orchestrator.core.actions.backups import RemoveBackup, VerifyBackup
from orchestrator.core.bucket import Bucket, BucketKeys, check_bucket_url
from orchestrator.core.errors import Fatal, InvalidInput, NotFound, Retryable
from tests.fakes.object_storage import ObjectStorage
from tests.unit.agent.bench import Bench
from tests.unit.agent.test_backups import Site, furnished_site


class InBucket(Site):
    """No directory is mounted."""

    storage: ObjectStorage
    ca = ""

    @property
    def bucket(self) -> Bucket:
        keys = BucketKeys(access_key=self.storage.access_key, secret_key=self.storage.secret_key)
        return Bucket(url=f"{self.storage.url}/site-a", region="", ca=self.ca, keys=keys)

    def members(self, number: int) -> dict[str, Any]:
        return {**super().members(number), "bucket": self.bucket}


@contextmanager
def in_bucket(furnished: Bench) -> Iterator[InBucket]:
    with ObjectStorage().served() as storage:
        made = InBucket(furnished_site(furnished).bench)
        made.mount(mounted=False)
        made.storage = storage
        yield made


@pytest.fixture
def site(furnished: Bench) -> Iterator[InBucket]:
    with in_bucket(furnished) as made:
        yield made


def test_a_disk_is_again_as_it_was_and_what_is_removed_leaves_its_bucket(site: InBucket) -> None:
    then, before = site.shown(), site.names()
    assert 8 * 2**20 < site.back_up(1) < 1.3 * 8 * 2**20
    assert all(name.startswith(f"site-a/{site.bench.vm}/") for name in site.storage.objects)
    site.write(os.urandom(2**20), 40 * 2**20)
    assert site.back_up(2) < 2 * 2**20
    site.do(VerifyBackup(**site.members(2)))
    site.put_back(1)
    assert site.shown() == then
    assert site.names() == before
    site.do(RemoveBackup(**site.members(1)))
    assert site.bench.do(RemoveBackup(**site.members(2))).changed
    assert sum(map(len, site.storage.objects.values())) < 2**16, "what nobody needs any more is gone"
    assert not any("/snapshots/" in name or "/locks/" in name for name in site.storage.objects)


def test_one_that_was_begun_or_had_another_password_makes_place_for_another(site: InBucket) -> None:
    """restic that died before the config was written, and a target that was made anew under its name."""
    assert not site.bench.do(RemoveBackup(**site.members(1))).changed
    site.storage.objects[f"site-a/{site.bench.vm}/keys/{'0' * 64}"] = b"half a key"
    site.back_up(1)
    with pytest.raises(Fatal) as refused:
        site.do(replace(site.take(2), password="of another secret"))
    assert refused.value.code == "backup.password"
    site.do(RemoveBackup(**site.members(1)))
    assert int(site.do(replace(site.store_of(2), password="of another secret"))) > 0


def test_no_more_is_written_in_a_second_than_may_be(site: InBucket) -> None:
    most = 2 * 2**20
    site.write(os.urandom(3 * most), 0)
    began = time.monotonic()
    site.do(replace(site.take(1), max_bytes_per_s=most))
    assert time.monotonic() - began > 2.5


def test_a_bucket_whose_server_has_a_certificate_of_its_own_is_believed_by_that_alone(
    furnished: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "server.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=s3 -addext"
    words = [*made.split(), "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", str(tmp_path / "ca.pem")]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    ca = (tmp_path / "ca.pem").read_text()
    file.write_text(file.read_text() + ca)
    site = InBucket(furnished_site(furnished).bench)
    with ObjectStorage().served(file) as site.storage:
        store = site.take(1)
        with pytest.raises(Fatal) as refused:
            site.do(store)
        assert (refused.value.code, site.storage.objects) == ("backup.tls", {})
        site.ca = ca
        assert int(site.do(site.store_of(1))) > 0
        site.do(VerifyBackup(**site.members(1)))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"access_key": "another"}, "backup.s3_denied"),
        ({"secret_key": "another"}, "backup.s3_denied"),
        ({"bucket": "other"}, "backup.no_bucket"),
        ({"refuses": {"GET": (403, "AccessDenied")}}, "backup.s3_denied"),
        ({"refuses": {"GET": (403, "RequestTimeTooSkewed")}}, "backup.clock"),
        ({"refuses": {"GET": (400, "AuthorizationHeaderMalformed")}}, "backup.s3_region"),
        ({"refuses": {"GET": (503, "SlowDown")}}, "backup.unreachable"),
    ],
)
def test_what_the_storage_refuses_is_told_by_host_and_nothing_is_made(
    site: InBucket, change: dict[str, Any], code: str
) -> None:
    """The bucket, too, which restic would make."""
    store = site.take(1)
    for name, value in change.items():
        setattr(site.storage, name, value)
    with pytest.raises((Fatal, NotFound, Retryable)) as refused:
        site.do(store)
    assert refused.value.code == code
    assert refused.value.hint
    assert site.storage.objects == {}
    said = f"{refused.value} {refused.value.hint} {refused.value.details} {store!r}"
    assert store.bucket is not None
    assert store.bucket.keys.secret_key not in said
    assert store.bucket.keys.access_key not in said


def test_a_storage_that_is_not_reached_is_told_by_host(site: InBucket) -> None:
    store = site.take(1)
    assert store.bucket is not None
    absent = replace(store.bucket, url="http://127.0.0.1:9/backups")
    with pytest.raises(Retryable) as refused:
        site.do(replace(store, bucket=absent))
    assert (refused.value.code, os.uname().nodename in str(refused.value)) == ("backup.unreachable", True)


def test_keys_are_in_no_argument_and_no_file_of_the_host(site: InBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    original = subprocess.Popen

    def seen(argv: list[str], **options: Any) -> Any:
        started.append(argv)
        return original(argv, **options)

    monkeypatch.setattr(subprocess, "Popen", seen)
    site.back_up(1)
    assert any("restic" in argv for argv in started)
    kept = [path.read_bytes() for path in site.volumes.parents[0].rglob("*") if path.is_file()]
    for secret in (site.storage.secret_key, site.storage.access_key):
        assert secret not in str(started)
        assert not any(secret.encode() in content for content in kept)


def test_names_are_listed_over_several_pages_and_up_to_the_next_slash(site: InBucket) -> None:
    site.storage.objects = {f"site-a/{vm}/{name}": b"" for vm in "abcde" for name in ("config", "keys/1", "x y+z")}
    site.storage.objects["site-b/f/config"] = b""
    objects = Objects(site.bucket)
    assert list(objects.names("", directories=True)) == ["a/", "b/", "c/", "d/", "e/"]
    assert list(objects.names("c/")) == ["c/config", "c/keys/1", "c/x y+z"]
    objects.remove("c/x y+z")
    assert "site-a/c/x y+z" not in site.storage.objects


def test_the_signature_is_that_of_the_examples_of_its_documentation() -> None:
    keys = BucketKeys(access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    bucket = Bucket(url="https://examplebucket.s3.amazonaws.com/b", region="us-east-1", ca="", keys=keys)
    headers = signed(bucket, "GET", "/", "max-keys=2&prefix=J", at=1369353600)
    assert headers["authorization"].endswith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")


@pytest.mark.parametrize("url", ["https://s3.example/backups", "http://10.0.0.1:9000/b-1/site/a/", "https://[::1]/b.c"])
def test_an_address_of_a_bucket_is_taken(url: str) -> None:
    assert check_bucket_url(url) == url.removesuffix("/")


@pytest.mark.parametrize(
    "url",
    ["https://s3.example", "s3:https://s3.example/b", "https://key:secret@s3.example/b", "https://s3.example/Upper",
     "https://s3.example/backups/../other", "https://s3.example/backups?x=1", "file:///backups", "https://h/b",
     "https://s3.example/backups" + "/p" * 9],
)  # fmt: skip
def test_what_is_no_address_of_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_bucket_url(url)
    assert refused.value.code == "backup.s3_invalid"
    assert "secret@" not in str(refused.value)
