# SPDX-License-Identifier: Apache-2.0
"""Bodies about driver bundles."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Moment
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.drivers.bundle import BundleContent, BundleFormat, BundleKind, DriverBundle, NewBundle


class AddDriverBundleBody(StrictForm):
    """A signed driver of the operator's."""

    copied_from = (NewBundle,)

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

    source: str = Field(max_length=4096)
    """Absolute path on the server's machine: .run, .deb or .rpm."""
    signature: str | None = Field(default=None, max_length=6144)
    key: str = Field(max_length=6144)
    sha256: str | None = Field(default=None, max_length=64)

    def wanted(self) -> NewBundle:
        """As the service takes it."""
        return NewBundle(source=self.source, signature=self.signature, key=self.key, sha256=self.sha256)


class DriverBundleAnswer(AnswerBody):
    """A driver as its file describes itself, checked."""

    copied_from = (
        BundleContent,
        DriverBundle,
    )

    sha256: str
    kind: BundleKind
    package: str
    version: str
    branch: str | None
    """null: it is not of a driver branch."""
    architecture: str
    format: BundleFormat
    size_bytes: int
    key_id: str
    comment: str
    created_at: Moment

    @classmethod
    def of(cls, bundle: DriverBundle) -> DriverBundleAnswer:
        return cls.copied(
            bundle,
            **{
                name: getattr(bundle.content, name) for name in ("kind", "package", "version", "architecture", "format")
            },
        )
