# SPDX-License-Identifier: Apache-2.0
"""The server that the steps ask, whoever asks it, and what a step tells of what it saw."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from xml.etree import ElementTree

from vgpuctl import Client, NotFound, VgpuctlError, models, open_client

GIB: Final = 1024**3
LIMIT_S: Final = 300.0
ADDRESS_WITHIN_S: Final = 240.0
KEY_NAME: Final = "isv-key"
LIKEWISE: Final = "likewise"


class Unmet(Exception):
    """What was seen is not what the check asks for."""


def need(seen: object, otherwise: str) -> None:
    """:raises Unmet: ``otherwise`` says what is not so"""
    if not seen:
        raise Unmet(otherwise)


class Results(dict[str, dict[str, Any]]):
    """What each probe of a step came to, by name, as the suite reads it: ``{"passed": bool, "error": str, …}``."""

    @contextmanager
    def probe(self, name: str, **evidence: object) -> Iterator[dict[str, Any]]:
        """Passed when its block ends well. The block may add evidence to what it is given."""
        result: dict[str, Any] = dict(evidence)
        self[name] = {"passed": False, "error": "it was not reached"}
        try:
            yield result
        except (VgpuctlError, Unmet, TimeoutError, OSError) as error:
            self[name] = {"passed": False, "error": str(error), **result}
        else:
            self[name] = {"passed": True, **result}

    def fail(self, names: tuple[str, ...], why: str) -> None:
        """Fails all of them for one reason, which is said once."""
        for name, error in zip(names, (why, *(LIKEWISE for _ in names[1:])), strict=True):
            self[name] = {"passed": False, "error": error}

    @property
    def passed(self) -> bool:
        return bool(self) and all(result["passed"] for result in self.values())

    def told(self, member: str = "tests", **more: object) -> dict[str, Any]:
        """As a step's output; ``error`` has each reason once."""
        wrong = {result["error"]: None for result in self.values() if not result["passed"]}
        error = {"error": "; ".join(why for why in wrong if why != LIKEWISE)} if wrong else {}
        return {"success": self.passed, member: dict(self), **error, **more}


def _answered(error: VgpuctlError) -> None:
    """:raises VgpuctlError: it is none of the server's answers, so nothing was refused"""
    if error.code.startswith("server."):
        raise error


def refusal(act: Callable[[], object], *codes: str, otherwise: str = "it was not refused") -> str:
    """The code that it is refused with, or that of a reason.

    :raises VgpuctlError: no server answered
    :raises Unmet: ``otherwise``, or it was refused with none of ``codes`` (by their beginnings)
    """
    try:
        act()
    except VgpuctlError as error:
        _answered(error)
        known = [error.code, *(reason.code for reason in error.reasons)]
        fitting = [code for code in known if not codes or code.startswith(codes)]
        need(fitting, f"refused with {' and '.join(known)} instead of {' or '.join(codes)}")
        return fitting[0]
    raise Unmet(otherwise)


@dataclass(frozen=True)
class Site:
    """``image``, ``profile``: of small VMs; ``board_profile``: for several GPUs of one NVSwitch baseboard;
    ``work``: where steps keep keys and tokens for each other."""

    url: str
    ca_file: Path
    token_file: Path
    work: Path
    image: str
    profile: str
    board_profile: str
    environment: Mapping[str, str]
    """What else a step may be given, as README.md lists it."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Site:
        """:raises KeyError: a variable is missing"""
        ca_file, token_file, work = (Path(environment[name]) for name in ("ISV_CA_FILE", "ISV_TOKEN_FILE", "ISV_WORK"))
        image, profile, board = (environment[name] for name in ("ISV_IMAGE", "ISV_PROFILE", "ISV_BOARD_PROFILE"))
        return cls(environment["ISV_URL"], ca_file, token_file, work, image, profile, board, environment)

    @property
    def guests(self) -> bool:
        """Whether guests are real: what they answer says something."""
        return self.environment.get("ISV_GUESTS") == "real"

    @property
    def guest_user(self) -> str:
        """Who may log in to guests and is root there, or becomes it by sudo."""
        return self.environment.get("ISV_GUEST_USER", "debian")

    def files(self, *variables: str) -> tuple[Path, ...] | None:
        """Those that the variables name; None: not all are named."""
        named = [self.environment.get(variable) for variable in variables]
        return tuple(Path(name) for name in named if name) if all(named) else None

    @cached_property
    def admin(self) -> Client:
        return self.client(self.token_file)

    def client(self, token_file: Path) -> Client:
        """Whoever's token it is."""
        return open_client(self.url, token_file=str(token_file), ca_file=str(self.ca_file))

    def bearer(self, name: str, token: str) -> Client:
        """Whoever shows this token; it is kept as ``name``."""
        path = self.work / f"{name}.token"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
        return self.client(path)

    def token(self, name: str, tenant: str, role: str, lifetime_s: int = 3600) -> tuple[models.Token, Client]:
        """A new one, and a client that shows it."""
        wanted = {"name": name, "tenant": tenant, "role": role, "lifetime_s": lifetime_s}
        made = self.admin.create_token(wanted)
        return made["about"], self.bearer(name, made["token"])

    def kept(self, name: str) -> Client:
        """With a token that an earlier step made."""
        return self.client(self.work / f"{name}.token")

    @contextmanager
    def tenant(self, name: str) -> Iterator[str]:
        """A new one that goes with all that it has."""
        self.fresh_tenant(name)
        try:
            yield name
        finally:
            self.clear(name)

    def fresh_tenant(self, name: str) -> models.Tenant:
        self.clear(name)
        return self.admin.create_tenant(name)

    def clear(self, tenant: str) -> None:
        """It and all that it has; nothing where there is none."""
        try:
            self.admin.tenant(tenant)
        except NotFound:
            return
        for vm in self.admin.vms(tenant):
            self.admin.wait(self.admin.delete_vm(vm["name"], tenant), timeout_s=LIMIT_S)
        for volume in self.admin.volumes(tenant):
            self.admin.wait(self.admin.delete_volume(volume["name"], tenant), timeout_s=LIMIT_S)
        for image in self.admin.images(tenant):
            if image["tenant"] == tenant:
                self.admin.remove_image(image["name"].rpartition("/")[2], tenant)
        self.admin.delete_tenant(tenant)

    def wish(self, name: str, tenant: str, **more: object) -> dict[str, object]:
        """A small VM as it is asked for."""
        memory_mib, disk_gib = (
            self.environment.get(*one) for one in (("ISV_MEMORY_MIB", "1024"), ("ISV_DISK_GIB", "4"))
        )
        small = {"vcpus": 1, "memory_mib": int(memory_mib), "disk_bytes": int(disk_gib) * GIB}
        return {"name": name, "tenant": tenant, "profile": self.profile, "image": self.image, **small, **more}

    def vm(self, name: str, tenant: str, **more: object) -> models.Vm:
        """A new one that runs."""
        self.admin.wait(self.admin.create_vm(self.wish(name, tenant, **more)), timeout_s=LIMIT_S)
        return self.admin.vm(name, tenant)

    def definition(self, wish: Mapping[str, object]) -> ElementTree.Element:
        """The domain that a host would be given for it. :raises Unmet: it is not shown"""
        shown = self.admin.plan_vm(wish)["domain_xml"]
        need(shown, "no definition was shown")
        return ElementTree.fromstring(shown or "")  # noqa: S314 (from the server that is judged)

    def address(self, name: str, tenant: str) -> str:
        """Its first, once its host has seen one. :raises Unmet: not in time"""
        addresses = self.until(
            lambda: self.admin.vm(name, tenant)["addresses"], f"no address of {name} was seen", ADDRESS_WITHIN_S
        )
        return str(addresses[0])

    def until(self, seen: Callable[[], Any], otherwise: str, limit_s: float = LIMIT_S) -> Any:
        """What is seen, when it is something. :raises Unmet: not in time"""
        deadline = time.monotonic() + limit_s
        while not (value := seen()):
            need(time.monotonic() < deadline, f"{otherwise} within {limit_s:g} s")
            time.sleep(0.2)
        return value

    def stop(self, name: str, tenant: str) -> None:
        self.admin.wait(self.admin.stop_vm(name, tenant), timeout_s=LIMIT_S)

    def start(self, name: str, tenant: str) -> None:
        self.admin.wait(self.admin.start_vm(name, tenant), timeout_s=LIMIT_S)

    def ssh_key(self) -> tuple[Path, str]:
        """The file of the key that VMs are made with, and its public line. Made when it is missing."""
        private = self.work / KEY_NAME
        if not private.exists():
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", KEY_NAME, "-f", str(private)], check=True
            )
        return private, private.with_suffix(".pub").read_text().strip()

    def has(self, route: str) -> bool:
        """Whether the API takes it, like ``POST /v1/keys``: it is asked for, and refused for another reason."""
        method, _, path = route.partition(" ")
        try:
            self.admin.connection.call(method, path, {} if method in {"POST", "PUT", "PATCH"} else None)
        except VgpuctlError as error:
            _answered(error)
            return error.code not in {"request.no_such_path", "request.method"}
        return True

    def metrics(self, page: str = "/metrics") -> str:
        """What Prometheus would scrape there."""
        place = urlsplit(self.url)
        trust = ssl.create_default_context(cafile=str(self.ca_file))
        connection = http.client.HTTPSConnection(place.hostname or "", place.port, timeout=30, context=trust)
        shown = {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}
        connection.request("GET", page, headers=shown)
        answer = connection.getresponse()
        text = answer.read().decode()
        need(answer.status == 200, f"GET {page} answers {answer.status}")
        return text
