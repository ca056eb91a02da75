# SPDX-License-Identifier: Apache-2.0
"""Data volumes as the suite's storage API has them. It is loaded by the suite, in an environment without vgpuctl."""

from __future__ import annotations

import json
import os
import ssl
from datetime import datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from isvtest.core.storage_provider import (
    API_VERSION,
    AuthenticationError,
    CreateVolumeRequest,
    DeleteVolumeRequest,
    GetTenantQuotaRequest,
    Implementation,
    ListVolumesRequest,
    ListVolumesResponse,
    NotFoundError,
    ProviderProperties,
    QuotaExceededError,
    StorageProvider,
    TenantQuota,
    VersionMetadata,
    Volume,
    new_implementation,
)

TENANT: Final = "isv-storage-api"
_CORE: Final = ProviderProperties(
    provider_namespace="vgpuctl.local",
    provider_id="vgpuctl-volumes",
    provider_metadata=VersionMetadata(vendor_name="vgpuctl", name="data volumes", version="1.0.0"),
    sdk_version=API_VERSION,
    storage_type="block",
    storage_protocols=["virtio"],
)
_STATES: Final = {"new": "available", "ready": "available", "deleting": "deleting", "lost": "failed"}
_MIB: Final = 1024**2


class Volumes(Implementation):
    """Over the server of the environment, with the token that the suite's first step made."""

    def __init__(self) -> None:
        place = urlsplit(os.environ["ISV_URL"])
        trust = ssl.create_default_context(cafile=os.environ["ISV_CA_FILE"])
        self._connection = HTTPSConnection(place.hostname or "", place.port, timeout=60, context=trust)
        token = Path(os.environ["ISV_WORK"], f"{TENANT}-token.token").read_text()
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def _call(self, method: str, path: str, body: dict[str, object] | None = None, **query: str) -> Any:
        target = f"/v1/{path}?{urlencode(query)}" if query else f"/v1/{path}"
        self._connection.request(method, target, None if body is None else json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        data = json.loads(answer.read() or "null")
        if answer.status < 400:
            return data
        kinds = {401: AuthenticationError, 403: AuthenticationError, 404: NotFoundError}
        over = str(data["code"]).startswith("quota.")
        raise (QuotaExceededError if over else kinds.get(answer.status, RuntimeError))(data["detail"])

    def health_check(self) -> None:
        self._call("GET", "whoami")

    def get_tenant_quota(self, req: GetTenantQuotaRequest) -> TenantQuota:
        lines = self._call("GET", f"tenants/{quote(str(req.tenant_id), safe='')}/quota")
        disk = next(line for line in lines if line["resource"] == "disk")
        return TenantQuota(
            tenant_id=str(req.tenant_id), name="disk", hard_limit_bytes=(disk["limit"] or 0) * _MIB,
            used_bytes=disk["used"] * _MIB,
        )  # fmt: skip

    def list_volumes(self, req: ListVolumesRequest) -> ListVolumesResponse:
        found = [_volume(one) for one in self._call("GET", "volumes", tenant=str(req.tenant_id))]
        return ListVolumesResponse(
            volumes=tuple(one for one in found if (not req.ids or one.id in req.ids) and not req.tag_filters)
        )

    def create_volume(self, req: CreateVolumeRequest) -> Volume:
        wanted = {"name": req.name or "asked", "tenant": str(req.tenant_id), "size_bytes": req.size_bytes}
        return _volume(self._call("POST", "volumes", wanted))

    def delete_volume(self, req: DeleteVolumeRequest) -> None:
        self._call("DELETE", f"volumes/{quote(req.volume_id, safe='')}", tenant=str(req.tenant_id))


def _volume(one: dict[str, Any]) -> Volume:
    return Volume(
        tenant_id=one["tenant"], id=one["name"], size_bytes=one["size_bytes"], name=one["name"], type="block",
        created_at=datetime.fromisoformat(one["created_at"]), state=_STATES[one["state"]],
    )  # fmt: skip


def build_api() -> StorageProvider:
    """What the suite calls."""
    return new_implementation(core=_CORE, impl=Volumes(), default_tenant=TENANT)
