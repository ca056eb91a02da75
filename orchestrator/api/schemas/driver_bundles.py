# SPDX-License-Identifier: Apache-2.0
"""Bodies about driver bundles."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, RequestBody, moment
from orchestrator.core.drivers.bundle import BundleFormat, BundleKind, DriverBundle, NewBundle


class AddDriverBundleBody(RequestBody):
    """A signed driver of the operator's."""

    model_config = ConfigDict(
        title="AddDriverBundle",
        json_schema_extra={
            "examples": [
                {
                    "source": "/srv/NVIDIA-Linux-x86_64-580.65.05-vgpu-kvm.run",
                    "signature": "(text of the .asc file)",
                    "key": "(text of the signer's key, armored)",
                }
            ]
        },
    )

    source: str = Field(max_length=4096, description="Absolute path on the server's machine: .run, .deb or .rpm")
    signature: str | None = Field(
        default=None,
        max_length=6144,
        description="OpenPGP, armored, as written beside it; without it: inside of a deb or rpm",
    )
    key: str = Field(max_length=6144, description="The signer's public key of OpenPGP, armored")
    sha256: str | None = Field(default=None, max_length=64, description="What the content must hash to")

    def wanted(self) -> NewBundle:
        """As the service takes it."""
        return NewBundle(source=self.source, signature=self.signature, key=self.key, sha256=self.sha256)


class DriverBundleAnswer(AnswerBody):
    """A driver as its file describes itself, checked."""

    sha256: str
    kind: BundleKind
    package: str
    version: str
    branch: str | None = Field(description="null: it is not of a driver branch")
    architecture: str
    format: BundleFormat
    size_bytes: int
    key_id: str = Field(description="Of the key that signed it")
    comment: str = Field(description="The signer's, covered by the signature; of OpenPGP whose key it is")
    created_at: datetime

    @classmethod
    def of(cls, bundle: DriverBundle) -> DriverBundleAnswer:
        content = bundle.content
        return cls(
            sha256=bundle.sha256,
            kind=content.kind,
            package=content.package,
            version=content.version,
            branch=bundle.branch,
            architecture=content.architecture,
            format=content.format,
            size_bytes=bundle.size_bytes,
            key_id=bundle.key_id,
            comment=bundle.comment,
            created_at=moment(bundle.created_at),
        )
