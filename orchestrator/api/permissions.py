# SPDX-License-Identifier: Apache-2.0
"""The one table of what each route needs. A route without a row is refused to everybody, and a test fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.core.tenancy.access import Caller, Role

Scope = Literal["pool", "anybody", "query", "body", "path", "list", "operation"]
"""Whose the thing is that a route is about.

``pool``: the operator's, so only roles that are held everywhere count. ``anybody``: known to all who have a role.
``query``, ``body``, ``path``: the tenant's that is named there. ``list``: those of all tenants the caller may know of.
``operation``: the tenant's whose operation the path names, the operator's when it has none.
"""


@dataclass(frozen=True)
class Rule:
    scope: Scope
    roles: frozenset[Role]


_ADMIN: Final[frozenset[Role]] = frozenset({"admin"})
_OPERATE: Final[frozenset[Role]] = _ADMIN | {"operator"}
_WATCH: Final[frozenset[Role]] = _OPERATE | {"read-only"}
_OWN: Final[frozenset[Role]] = _ADMIN | {"tenant-admin"}
_USE: Final[frozenset[Role]] = _OPERATE | {"tenant-admin", "tenant-user"}
_SEE: Final[frozenset[Role]] = _USE | {"read-only"}

WHAT_IFS: Final = frozenset(
    {
        "POST /v1/vms/plan",
        "POST /v1/vms/{name}/move/plan",
        "POST /v1/vms/{name}/resize/plan",
        "POST /v1/hosts/{name}/mig-layout/plan",
        "POST /v1/hosts/{name}/provision/plan",
    }
)
"""Routes that only read, though they have a body: no refusal of theirs kept anybody from a change."""

RULES: Final[dict[str, Rule]] = {
    "POST /v1/vms": Rule("body", _USE),
    "POST /v1/vms/plan": Rule("body", _USE),
    "POST /v1/vms/adopt": Rule("pool", _OPERATE),
    "GET /v1/vms": Rule("list", _SEE),
    "GET /v1/vms/{name}": Rule("query", _SEE),
    "PATCH /v1/vms/{name}": Rule("query", _USE),
    "DELETE /v1/vms/{name}": Rule("query", _USE),
    "POST /v1/vms/{name}/start": Rule("query", _USE),
    "POST /v1/vms/{name}/stop": Rule("query", _USE),
    "POST /v1/vms/{name}/restart": Rule("query", _USE),
    "POST /v1/vms/{name}/suspend": Rule("query", _USE),
    "POST /v1/vms/{name}/resume": Rule("query", _USE),
    "POST /v1/vms/{name}/discard-suspended": Rule("query", _USE),
    "GET /v1/vms/{name}/snapshots": Rule("query", _SEE),
    "POST /v1/vms/{name}/snapshots": Rule("query", _USE),
    "DELETE /v1/vms/{name}/snapshots/{snapshot}": Rule("query", _USE),
    "POST /v1/vms/{name}/snapshots/{snapshot}/restore": Rule("query", _USE),
    "GET /v1/backup-targets": Rule("anybody", _SEE),
    "POST /v1/backup-targets": Rule("pool", _OPERATE),
    "DELETE /v1/backup-targets/{name}": Rule("pool", _OPERATE),
    "POST /v1/backup-targets/{name}/secret": Rule("pool", _ADMIN),
    "GET /v1/backups": Rule("list", _SEE),
    "POST /v1/backups": Rule("body", _USE),
    "DELETE /v1/backups/{id}": Rule("query", _USE),
    "POST /v1/backups/{id}/restore": Rule("query", _USE),
    "POST /v1/backups/{id}/verify": Rule("query", _USE),
    "POST /v1/vms/{name}/rename": Rule("query", _USE),
    "POST /v1/vms/{name}/move": Rule("pool", _OPERATE),
    "POST /v1/vms/{name}/move/plan": Rule("pool", _OPERATE),
    "POST /v1/vms/{name}/networks": Rule("query", _USE),
    "DELETE /v1/vms/{name}/networks/{network}": Rule("query", _USE),
    "POST /v1/vms/{name}/resize": Rule("query", _USE),
    "POST /v1/vms/{name}/resize/plan": Rule("query", _USE),
    "POST /v1/vms/{name}/maintenance": Rule("query", _USE),
    "POST /v1/vms/{name}/extend": Rule("query", _USE),
    "POST /v1/vms/{name}/provision": Rule("query", _USE),
    "GET /v1/vms/{name}/provision": Rule("query", _SEE),
    "GET /v1/vms/{name}/moves": Rule("query", _SEE),
    "GET /v1/vms/{name}/console": Rule("query", _USE),
    "GET /v1/vms/{name}/console/log": Rule("query", _USE),
    "GET /v1/vms/{name}/display": Rule("query", _USE),
    "POST /v1/vms/{name}/console-tickets": Rule("query", _USE),
    "GET /v1/vms/{name}/console-sessions/{kind}": Rule("query", _USE),
    "GET /v1/vms/{name}/tcp/{port}": Rule("query", _USE),
    "WEBSOCKET /v1/vms/{name}/console": Rule("query", _USE),
    "WEBSOCKET /v1/vms/{name}/display": Rule("query", _USE),
    "WEBSOCKET /v1/vms/{name}/console-sessions/{kind}": Rule("query", _USE),
    "WEBSOCKET /v1/vms/{name}/tcp/{port}": Rule("query", _USE),
    "POST /v1/hosts/scan": Rule("pool", _OPERATE),
    "POST /v1/hosts/check": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/check": Rule("pool", _OPERATE),
    "POST /v1/hosts": Rule("pool", _OPERATE),
    "GET /v1/hosts": Rule("pool", _WATCH),
    "GET /v1/hosts/{name}": Rule("pool", _WATCH),
    "PATCH /v1/hosts/{name}": Rule("pool", _OPERATE),
    "DELETE /v1/hosts/{name}": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/forget": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/upgrade-agent": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/provision": Rule("pool", _ADMIN),
    "POST /v1/hosts/{name}/provision/plan": Rule("pool", _ADMIN),
    "POST /v1/hosts/{name}/cordon": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/drain": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/evacuate": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/uncordon": Rule("pool", _OPERATE),
    "POST /v1/hosts/{name}/mig-layout/plan": Rule("pool", _OPERATE),
    "PUT /v1/hosts/{name}/mig-layout": Rule("pool", _OPERATE),
    "DELETE /v1/hosts/{name}/mig-layout": Rule("pool", _OPERATE),
    "GET /v1/gpus": Rule("pool", _WATCH),
    "GET /v1/gpus/{host}/{address}": Rule("pool", _WATCH),
    "POST /v1/gpus/defragment": Rule("pool", _OPERATE),
    "POST /v1/gpus/defragment/plan": Rule("pool", _OPERATE),
    "POST /v1/gpus/{host}/accept": Rule("pool", _OPERATE),
    "GET /v1/readings/hosts": Rule("pool", _WATCH),
    "GET /v1/readings/gpus": Rule("pool", _WATCH),
    "GET /v1/readings/vms": Rule("list", _SEE),
    "GET /v1/readings/hosts/{host}": Rule("pool", _WATCH),
    "GET /v1/readings/vms/{name}": Rule("query", _SEE),
    "GET /v1/metrics/targets": Rule("list", _SEE),
    "GET /v1/metrics/hosts/{host}": Rule("pool", _WATCH),
    "GET /v1/metrics/dcgm/{host}": Rule("pool", _WATCH),
    "GET /v1/metrics/tenants/{tenant}": Rule("path", _SEE),
    "GET /v1/gpu-map": Rule("list", _SEE),
    "GET /v1/gpu-map/racks": Rule("pool", _WATCH),
    "GET /v1/profiles": Rule("anybody", _SEE),
    "GET /v1/profiles/{name}": Rule("anybody", _SEE),
    "PUT /v1/offerings": Rule("pool", _OPERATE),
    "GET /v1/offerings": Rule("anybody", _SEE),
    "DELETE /v1/offerings/{name}": Rule("pool", _OPERATE),
    "GET /v1/capacity": Rule("list", _SEE),
    "GET /v1/explain": Rule("query", _SEE),
    "POST /v1/images": Rule("pool", _OPERATE),
    "PUT /v1/images/{name}/content": Rule("pool", _OPERATE),
    "GET /v1/images": Rule("list", _SEE),
    "GET /v1/images/{name}": Rule("anybody", _SEE),
    "PATCH /v1/images/{name}": Rule("pool", _OPERATE),
    "PUT /v1/images/{name}/guest-driver": Rule("pool", _OPERATE),
    "DELETE /v1/images/{name}": Rule("pool", _OPERATE),
    "PUT /v1/tenants/{tenant}/images/{name}/content": Rule("path", _USE),
    "GET /v1/tenants/{tenant}/images/{name}": Rule("path", _SEE),
    "PATCH /v1/tenants/{tenant}/images/{name}": Rule("path", _USE),
    "PUT /v1/tenants/{tenant}/images/{name}/guest-driver": Rule("path", _USE),
    "DELETE /v1/tenants/{tenant}/images/{name}": Rule("path", _USE),
    "POST /v1/driver-bundles": Rule("pool", _ADMIN),
    "PUT /v1/driver-bundles/{sha256}/content": Rule("pool", _ADMIN),
    "GET /v1/driver-bundles": Rule("pool", _WATCH),
    "GET /v1/driver-bundles/{sha256}": Rule("pool", _WATCH),
    "DELETE /v1/driver-bundles/{sha256}": Rule("pool", _ADMIN),
    "GET /v1/driver-lock": Rule("pool", _WATCH),
    "PUT /v1/driver-lock": Rule("pool", _OPERATE),
    "GET /v1/driver-check": Rule("pool", _WATCH),
    "POST /v1/driver-upgrade": Rule("pool", _ADMIN),
    "GET /v1/maintenances": Rule("pool", _WATCH),
    "GET /v1/maintenances/{id}": Rule("pool", _WATCH),
    "POST /v1/maintenances/{id}/pause": Rule("pool", _OPERATE),
    "POST /v1/maintenances/{id}/resume": Rule("pool", _ADMIN),
    "POST /v1/maintenances/{id}/cancel": Rule("pool", _OPERATE),
    "POST /v1/networks": Rule("pool", _OPERATE),
    "GET /v1/networks": Rule("list", _SEE),
    "GET /v1/networks/{name}": Rule("anybody", _SEE),
    "PATCH /v1/networks/{name}": Rule("pool", _OPERATE),
    "DELETE /v1/networks/{name}": Rule("pool", _OPERATE),
    "POST /v1/networks/{name}/share": Rule("pool", _OPERATE),
    "POST /v1/networks/{name}/unshare": Rule("pool", _OPERATE),
    "GET /v1/network-driver": Rule("pool", _WATCH),
    "POST /v1/network-driver/certificates": Rule("pool", _ADMIN),
    "GET /v1/network-paths": Rule("query", _SEE),
    "POST /v1/floating-addresses": Rule("body", _USE),
    "GET /v1/floating-addresses": Rule("list", _SEE),
    "POST /v1/floating-addresses/{address}/attach": Rule("query", _USE),
    "POST /v1/floating-addresses/{address}/detach": Rule("query", _USE),
    "DELETE /v1/floating-addresses/{address}": Rule("query", _USE),
    "POST /v1/security-groups": Rule("body", _USE),
    "GET /v1/security-groups": Rule("list", _SEE),
    "GET /v1/security-groups/{name}": Rule("query", _SEE),
    "PATCH /v1/security-groups/{name}": Rule("query", _USE),
    "DELETE /v1/security-groups/{name}": Rule("query", _USE),
    "POST /v1/security-groups/{name}/rules": Rule("query", _USE),
    "POST /v1/security-groups/{name}/uses": Rule("query", _USE),
    "POST /v1/tenants/{tenant}/networks": Rule("path", _USE),
    "GET /v1/tenants/{tenant}/networks/{name}": Rule("path", _SEE),
    "GET /v1/tenants/{tenant}/networks/{name}/traffic": Rule("path", _SEE),
    "GET /v1/tenants/{tenant}/networks/{name}/flows": Rule("path", _SEE),
    "PATCH /v1/tenants/{tenant}/networks/{name}": Rule("path", _USE),
    "DELETE /v1/tenants/{tenant}/networks/{name}": Rule("path", _USE),
    "POST /v1/tenants/{tenant}/networks/{name}/convert": Rule("path", _USE),
    "POST /v1/pools": Rule("pool", _OPERATE),
    "GET /v1/pools": Rule("pool", _WATCH),
    "GET /v1/pools/{name}": Rule("pool", _WATCH),
    "DELETE /v1/pools/{name}": Rule("pool", _OPERATE),
    "POST /v1/volumes": Rule("body", _USE),
    "GET /v1/volumes": Rule("list", _SEE),
    "GET /v1/volumes/{name}": Rule("query", _SEE),
    "PATCH /v1/volumes/{name}": Rule("query", _USE),
    "DELETE /v1/volumes/{name}": Rule("query", _USE),
    "POST /v1/volumes/{name}/attach": Rule("query", _USE),
    "POST /v1/volumes/{name}/detach": Rule("query", _USE),
    "POST /v1/volumes/{name}/limit": Rule("query", _USE),
    "POST /v1/volumes/{name}/resize": Rule("query", _USE),
    "GET /v1/operations": Rule("list", _SEE),
    "GET /v1/operations/{operation_id}": Rule("operation", _SEE),
    "GET /v1/operations/{operation_id}/events": Rule("operation", _SEE),
    "POST /v1/operations/{operation_id}/cancel": Rule("operation", _USE),
    "POST /v1/operations/{operation_id}/retry": Rule("operation", _OPERATE),
    "POST /v1/operations/{operation_id}/abandon": Rule("operation", _OPERATE),
    "GET /v1/events": Rule("list", _SEE),
    "POST /v1/webhooks": Rule("body", _OWN | {"operator"}),
    "GET /v1/webhooks": Rule("query", _OWN | {"operator"}),
    "GET /v1/webhooks/{name}": Rule("query", _OWN | {"operator"}),
    "DELETE /v1/webhooks/{name}": Rule("query", _OWN | {"operator"}),
    "POST /v1/webhooks/{name}/test": Rule("query", _OWN | {"operator"}),
    "GET /v1/findings": Rule("pool", _WATCH),
    "POST /v1/findings/look": Rule("pool", _OPERATE),
    "POST /v1/findings/repair": Rule("pool", _OPERATE),
    "GET /v1/status": Rule("list", _SEE),
    "GET /v1/server": Rule("anybody", _SEE),
    "POST /v1/server/stop": Rule("pool", _ADMIN),
    "POST /v1/tenants": Rule("pool", _OPERATE),
    "GET /v1/tenants": Rule("list", _SEE),
    "GET /v1/tenants/{tenant}": Rule("path", _SEE),
    "PATCH /v1/tenants/{tenant}": Rule("path", _OWN | {"operator"}),
    "DELETE /v1/tenants/{tenant}": Rule("pool", _OPERATE),
    "GET /v1/tenants/{tenant}/members": Rule("path", _OWN | {"operator"}),
    "PUT /v1/tenants/{tenant}/members": Rule("path", _OWN),
    "DELETE /v1/tenants/{tenant}/members": Rule("path", _OWN),
    "GET /v1/audit": Rule("pool", _WATCH),
    "GET /v1/audit/export": Rule("pool", _WATCH),
    "GET /v1/audit/verify": Rule("pool", _WATCH),
    "GET /v1/tenants/{tenant}/quota": Rule("path", _SEE),
    "PATCH /v1/tenants/{tenant}/quota": Rule("pool", _OPERATE),
    "GET /v1/tenants/{tenant}/policy": Rule("path", _SEE),
    "PATCH /v1/tenants/{tenant}/policy": Rule("path", _OWN | {"operator"}),
    "GET /v1/whoami": Rule("anybody", _SEE),
    "POST /v1/tokens": Rule("body", _OWN),
    "GET /v1/tokens": Rule("query", _OWN),
    "DELETE /v1/tokens/{token_id}": Rule("query", _OWN),
}


def may_operate(caller: Caller) -> bool:
    """Whether what is the pool's is the caller's to change."""
    return bool(_OPERATE & caller.everywhere)


WATCHING: Final = Rule("pool", _WATCH)
"""For ``/metrics``."""
