# SPDX-License-Identifier: Apache-2.0
"""Implements ports/overlay.Overlay: both databases of OVN, whoever has set them up. Reads alone."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from orchestrator.adapters.ovn.ovsdb import OvsdbClient, plain_row, unreachable
from orchestrator.core.errors import Retryable, VgpuctlError
from orchestrator.core.ovn import OUR_ID, OvnBinding, OvnChassis, OvnDatabase, OvnMember, OvnReading

_NAMES: Final[Mapping[OvnDatabase, str]] = {"northbound": "OVN_Northbound", "southbound": "OVN_Southbound"}
_SERVER: Final = ("Database", ("name", "model", "connected", "leader", "index"))
_TABLES: Final[Mapping[OvnDatabase, Sequence[tuple[str, Sequence[str]]]]] = {
    "northbound": (
        ("Logical_Switch", ("external_ids",)),
        ("Logical_Router", ("external_ids",)),
        ("NB_Global", ("nb_cfg", "sb_cfg")),
    ),
    "southbound": (
        ("SB_Global", ("nb_cfg", "options")),
        ("Chassis", ("name", "hostname", "encaps", "other_config")),
        ("Chassis_Private", ("name", "nb_cfg")),
        ("Encap", ("_uuid", "type", "ip")),
    ),
}
_LIMIT_S: Final = 5.0
_WHY: Final = 200
"""Characters of what it said of a refusal."""
_MOST: Final = 2**63 - 1
"""Of an integer of OVSDB."""
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class OvnDatabases:
    """``trust``: whom to believe over TLS, and what to show there; None: nothing is known of that."""

    northbound: Sequence[str]
    southbound: Sequence[str]
    trust: Callable[[], ssl.SSLContext | None]

    def read(self) -> OvnReading:
        """See :class:`orchestrator.ports.overlay.Overlay`. All servers are asked side by side."""
        trust = self.trust()
        north: list[OvnDatabase] = ["northbound" for _ in self.northbound]
        south: list[OvnDatabase] = ["southbound" for _ in self.southbound]
        addresses = (*self.northbound, *self.southbound)
        with ThreadPoolExecutor(len(addresses)) as threads:
            answers = list(threads.map(partial(_ask, trust), north + south, addresses))
        fields: dict[str, Any] = {}
        for member, of_database in sorted(answers, key=lambda answer: not answer[0].leader):
            if member.error is None:
                fields = of_database | fields
        return OvnReading(members=tuple(member for member, _ in answers), **fields)

    def bindings(self, ports: Iterable[str]) -> Mapping[str, OvnBinding]:
        """See :class:`orchestrator.ports.overlay.Overlay`. Of the first server that answers."""
        trust, error = self.trust(), unreachable("it has no server")
        chassis = {"op": "select", "table": "Chassis", "where": [], "columns": ["_uuid", "name"]}
        of_ports = [
            {"op": "select", "table": "Port_Binding", "where": [["logical_port", "==", port]],
             "columns": ["logical_port", "chassis", "up"]} for port in ports
        ]  # fmt: skip
        for address in self.southbound:
            try:
                with OvsdbClient(address, trust, _LIMIT_S) as client:
                    known, *bound = client.transact(_NAMES["southbound"], chassis, *of_ports)
            except Retryable as failed:
                error = failed
                continue
            names = {row["_uuid"]: str(row["name"]) for row in map(plain_row, known["rows"])}
            rows = [plain_row(row) for answer in bound for row in answer["rows"]]
            return {
                str(row["logical_port"]): OvnBinding(chassis=names.get(str(row["chassis"])), up=row["up"] is True)
                for row in rows
            }
        raise error


def _ask(trust: ssl.SSLContext | None, database: OvnDatabase, address: str) -> tuple[OvnMember, dict[str, Any]]:
    """The server, and what its database tells of :class:`OvnReading`."""
    silent = OvnMember(database=database, address=address, error="it answered with something else", answered_ms=None)
    began = time.monotonic()
    try:
        with OvsdbClient(address, trust, _LIMIT_S) as client:
            (known,) = client.select("_Server", _SERVER)
            held = next((row for row in known if row["name"] == _NAMES[database]), None)
            if held is None:
                raise unreachable(f"no {_NAMES[database]} is there")
            member = replace(
                silent, error=None, answered_ms=round((time.monotonic() - began) * 1000, 1),
                clustered=held["model"] == "clustered", connected=held["connected"] is True,
                leader=held["leader"] is True, log_index=None if held["index"] == [] else _number(held["index"]),
                certificate_ends_at=client.certificate_ends_at(),
            )  # fmt: skip
            tables = client.select(_NAMES[database], *_TABLES[database])
            return member, (_of_northbound if database == "northbound" else _of_southbound)(*tables)
    except VgpuctlError as error:
        why = error.message.removeprefix(unreachable("").message)
        return replace(silent, error=why if error.details is None else f"{why}: {error.details[:_WHY]}"), {}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return silent, {}


def _of_northbound(switches: Rows, routers: Rows, overall: Rows) -> dict[str, Any]:
    ids = [row["external_ids"] for row in (*switches, *routers)]
    ours = sum(OUR_ID in external for external in ids)
    behind = _number(overall[0]["nb_cfg"]) - _number(overall[0]["sb_cfg"]) if overall else 0
    return {"ours": ours, "foreign": len(ids) - ours, "northd_behind": max(behind, 0)}


def _of_southbound(overall: Rows, chassis: Rows, private: Rows, encapsulations: Rows) -> dict[str, Any]:
    wanted = _number(overall[0]["nb_cfg"]) if overall else 0
    version = overall[0]["options"].get("northd_internal_version") if overall else None
    ways = {row["_uuid"]: f"{row['type']} {row['ip']}" for row in encapsulations}
    done = {row["name"]: _number(row["nb_cfg"]) for row in private}
    return {
        "version": None if version is None else str(version),
        "chassis": tuple(
            OvnChassis(
                name=str(row["name"]), hostname=str(row["hostname"]),
                encapsulations=tuple(sorted(ways[each] for each in _several(row["encaps"]))),
                behind=max(wanted - done.get(row["name"], 0), 0),
                mappings=_mappings(row["other_config"]), gateway=_is_gateway(row["other_config"]),
            )
            for row in sorted(chassis, key=lambda row: str(row["name"]))
        ),
    }  # fmt: skip


def _mappings(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Of ``physnet1:br-ex,physnet2:br-b`` (ovn-controller(8))."""
    pairs = [pair.partition(":") for pair in settings.get("ovn-bridge-mappings", "").split(",")]
    return tuple(sorted(name.strip() for name, colon, _ in pairs if colon))


def _is_gateway(settings: Mapping[str, str]) -> bool:
    return "enable-chassis-as-gw" in settings.get("ovn-cms-options", "").split(",")


def _number(value: Any) -> int:
    """:raises TypeError: it is no integer of OVSDB"""
    if type(value) is not int or not 0 <= value <= _MOST:
        raise TypeError(value)
    return value


def _several(value: Any) -> list[Any]:
    """A set of one is written as that one."""
    return value if isinstance(value, list) else [value]
