# SPDX-License-Identifier: Apache-2.0
"""The connection to the host's libvirt: kept alive, opened again after a restart of the daemon, with deadlines.

Events of domains come on one of their own. They may get lost: observing is what counts, they only make it sooner.
"""

from __future__ import annotations

import queue
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import libvirt

from orchestrator.agent.timing import CallHangs, Gate, TooManyHungCalls
from orchestrator.core.errors import Fatal, Retryable, Unknown, VgpuctlError
from orchestrator.core.hosts.snapshot import Confinement

T = TypeVar("T")

CALL_SECONDS = 60.0
_AT_ONCE: Final = 4
"""Calls of one connection. libvirtd reads nothing more of a client that has five under way (``max_client_requests`` of
libvirtd.conf), its keep-alives neither, and closes it half a minute later: the answers of all of them are lost."""
_CONFINING: Final[tuple[Confinement, ...]] = ("apparmor", "selinux")
_KEEPALIVE_SECONDS, _KEEPALIVE_MISSED = 5, 5

_event_loop_lock = threading.Lock()
_event_loop: list[threading.Thread] = []


def _ignore(_context: object, _error: object) -> None:
    """libvirt prints every error to stderr by default; ours are raised."""


def start_event_loop() -> None:
    """Run libvirt's event loop in one thread: keep-alives and events need it. Once per process."""
    with _event_loop_lock:
        if _event_loop:
            return
        libvirt.registerErrorHandler(_ignore, None)
        libvirt.virEventRegisterDefaultImpl()
        thread = threading.Thread(target=_run_event_loop, name="libvirt-events", daemon=True)
        _event_loop.append(thread)
        thread.start()


def _run_event_loop() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


_RETRYABLE = frozenset(
    {
        libvirt.VIR_ERR_NO_CONNECT,
        libvirt.VIR_ERR_OPERATION_TIMEOUT,
        libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
        libvirt.VIR_ERR_RESOURCE_BUSY,
    }
)
_ABSENT = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_NETWORK, libvirt.VIR_ERR_NO_NWFILTER)
_OF_ONE_DOMAIN = (
    libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_ERR_XML_ERROR, libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
    libvirt.VIR_ERR_OPERATION_FAILED,
)  # fmt: skip
_CONNECTION_LOST = frozenset({libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE, libvirt.VIR_FROM_STREAMS})


def translated(error: Any, code: str, message: str, hint: str) -> VgpuctlError:
    """The libvirt error as one of ours. A connection that broke during the call leaves the outcome open."""
    details = f"libvirt: {error}"
    if error.get_error_domain() in _CONNECTION_LOST and error.get_error_code() in (
        libvirt.VIR_ERR_SYSTEM_ERROR,
        libvirt.VIR_ERR_INTERNAL_ERROR,
        libvirt.VIR_ERR_RPC,
    ):
        return Unknown("libvirt.answer_lost", "the connection to libvirt broke", hint="look at the VM", details=details)
    family = Retryable if error.get_error_code() in _RETRYABLE else Fatal
    return family(code, message, hint=hint, details=details)


@dataclass(frozen=True)
class Hypervisor:
    """What libvirt says of itself and of QEMU."""

    libvirt_version: str
    qemu_version: str
    confinement: Confinement
    """What libvirt starts each QEMU under."""


class Libvirt:
    """One connection for all short calls, which many threads share, and one of its own for each that may take long."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._connection: Any = None
        self._told: tuple[Any, str, Confinement] | None = None
        """The connection that said so, and what it said: libvirt's version, and what it confines QEMU with."""
        self._gate = Gate("libvirt", limit_s=CALL_SECONDS)
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        start_event_loop()

    def call(
        self,
        function: Callable[[Any], T],
        *,
        code: str = "libvirt.failed",
        message: str = "libvirt refused",
        hint: str = "see the details",
        limit_s: float = CALL_SECONDS,
    ) -> T:
        """``function(connection)`` with a deadline; what libvirt raises becomes ``code`` and ``message``.

        :raises Retryable: ``libvirt.unreachable`` when nothing was done
        :raises Unknown: ``libvirt.hung`` or ``libvirt.answer_lost`` when it may have been done
        :raises Fatal: ``code``
        """
        try:
            return self._gate.call(lambda: self._made(function, limit_s), limit_s=limit_s)
        except CallHangs as error:
            raise Unknown(
                "libvirt.hung", "libvirt did not answer in time", hint="look at libvirtd", details=str(error)
            ) from error
        except TooManyHungCalls as error:
            raise Retryable(
                "libvirt.unreachable", "libvirt does not answer", hint="look at libvirtd", details=str(error)
            ) from error
        except libvirt.libvirtError as error:
            raise translated(error, code, message, hint) from error

    def _made(self, function: Callable[[Any], T], limit_s: float) -> T:
        if limit_s > CALL_SECONDS:  # a start with a large memory, and memory that is written or read
            connection = self.open()
            try:
                return function(connection)
            finally:
                connection.close()
        if not self._places.acquire(timeout=limit_s / 2):  # what is begun later may be done after its caller has gone
            raise TooManyHungCalls(f"{_AT_ONCE} earlier calls to libvirt are under way")
        try:
            return function(self.connected())
        finally:
            self._places.release()

    def hypervisor(self) -> Hypervisor:
        """:raises WorldError: see :meth:`call`"""
        return self.call(self._hypervisor)

    def _hypervisor(self, connection: Any) -> Hypervisor:
        """QEMU may be another one meanwhile. What libvirt chose when it started is asked once for a connection."""
        if self._told is None or self._told[0] is not connection:
            confinement = _confinement_of(connection.getCapabilities())
            self._told = connection, _dotted(connection.getLibVersion()), confinement
        _, libvirt_version, confinement = self._told
        return Hypervisor(libvirt_version, _dotted(connection.getVersion()), confinement)

    def connected(self) -> Any:
        """The live connection.

        :raises Retryable: ``libvirt.unreachable``
        """
        with self._lock:
            if self._connection is None or not self._connection.isAlive():
                self._connection = self.open()
            return self._connection

    def open(self) -> Any:
        """A connection of the caller's own.

        :raises Retryable: ``libvirt.unreachable``
        """
        try:
            connection = libvirt.open(self._uri)
        except libvirt.libvirtError as error:
            raise Retryable(
                "libvirt.unreachable", "libvirt is not running on the host", hint="start libvirtd", details=str(error)
            ) from error
        if not self._uri.startswith("test:"):
            connection.setKeepAlive(_KEEPALIVE_SECONDS, _KEEPALIVE_MISSED)
        return connection


def _confinement_of(capabilities: str) -> Confinement:
    """DAC, which is always among the models, is QEMU's account alone."""
    root = ET.fromstring(capabilities)  # noqa: S314 - libvirt's own
    models = {model.text for model in root.iterfind("host/secmodel/model")}
    return next((model for model in _CONFINING if model in models), "none")


def _dotted(number: int) -> str:
    """libvirt packs versions as major * 1,000,000 + minor * 1,000 + release."""
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"


def is_absent(error: Any) -> bool:
    """Whether libvirt says that there is no such domain, network or filter."""
    return error.get_error_code() in _ABSENT


def is_of_one_domain(error: Exception) -> bool:
    """Whether it tells of one domain's definition and not of libvirt or the connection to it."""
    if not isinstance(error, libvirt.libvirtError):
        return True
    return error.get_error_code() in _OF_ONE_DOMAIN and error.get_error_domain() not in _CONNECTION_LOST


Event = dict[str, object]

_MAX_WAITING = 1000

_NAMES = {
    libvirt.VIR_DOMAIN_EVENT_DEFINED: "defined",
    libvirt.VIR_DOMAIN_EVENT_UNDEFINED: "undefined",
    libvirt.VIR_DOMAIN_EVENT_STARTED: "started",
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED: "suspended",
    libvirt.VIR_DOMAIN_EVENT_RESUMED: "resumed",
    libvirt.VIR_DOMAIN_EVENT_STOPPED: "stopped",
    libvirt.VIR_DOMAIN_EVENT_SHUTDOWN: "shutdown",
    libvirt.VIR_DOMAIN_EVENT_PMSUSPENDED: "pm_suspended",
    libvirt.VIR_DOMAIN_EVENT_CRASHED: "crashed",
}


@contextmanager
def subscribed(host: Libvirt) -> Iterator[queue.Queue[Event]]:
    """A queue that life-cycle events come into.

    :raises Retryable: ``libvirt.unreachable``
    """
    waiting: queue.Queue[Event] = queue.Queue(_MAX_WAITING)
    connection = host.open()

    def arrived(_connection: Any, domain: Any, event: int, _detail: int, _opaque: object) -> None:
        _put(waiting, {"kind": "domain", "vm": domain.UUIDString().lower(), "what": _NAMES.get(event, str(event))})

    def closed(_connection: Any, _reason: int, _opaque: object) -> None:
        _put(waiting, {"kind": "libvirt_closed"})

    try:
        connection.registerCloseCallback(closed, None)
        callback = connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, arrived, None)
        try:
            yield waiting
        finally:
            if connection.isAlive():
                connection.domainEventDeregisterAny(callback)
    finally:
        connection.close()


def _put(waiting: queue.Queue[Event], event: Event) -> None:
    """Never blocks libvirt's event loop: with a reader that slow, events are lost."""
    if not waiting.full():
        waiting.put_nowait(event)
