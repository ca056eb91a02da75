# SPDX-License-Identifier: Apache-2.0
"""Bodies about what makes networks."""

from __future__ import annotations

from pydantic import Field

from orchestrator.api.schemas.base import MAX_NAME, AnswerBody, CopiedAnswer, Moment
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.ovn import CertificateFor, OvnChassis, OvnMember, OvnTrouble
from orchestrator.ports.overlay import SignedCertificate
from orchestrator.services.network_driver import NetworkDriver, NetworkEngine


class OvnMemberAnswer(CopiedAnswer, copies=OvnMember):
    """One server of a database of OVN, as it answered just now."""

    certificate_ends_at: Moment | None
    """When the certificate ends that it has shown; null: it has none."""


class OvnChassisAnswer(CopiedAnswer, copies=OvnChassis):
    """A host as OVN knows it."""


class OvnTroubleAnswer(CopiedAnswer, copies=OvnTrouble):
    """Something that is not as it should be."""


class NetworkDriverAnswer(AnswerBody):
    """What makes networks, and how it is."""

    engine: NetworkEngine
    """nat: of each host alone; ovn: that, and OVN over all hosts beside it."""
    version: str | None
    """Of OVN, as its ovn-northd writes it; null: none is known."""
    encapsulation_network: str | None
    """Where hosts have to have the address that others send their VMs' frames to; null: anywhere."""
    ours: int
    """Switches and routers of OVN with an id of ours."""
    foreign: int
    """Its others, which are never changed."""
    members: tuple[OvnMemberAnswer, ...]
    """Servers of its databases."""
    chassis: tuple[OvnChassisAnswer, ...]
    """Hosts that it knows, by name."""
    troubles: tuple[OvnTroubleAnswer, ...]
    """What is not as it should be."""

    @classmethod
    def of(cls, driver: NetworkDriver) -> NetworkDriverAnswer:
        reading, network = driver.reading, driver.encapsulation_network
        return cls(
            engine=driver.engine,
            version=None if reading is None else reading.version,
            encapsulation_network=None if network is None else str(network),
            ours=0 if reading is None else reading.ours,
            foreign=0 if reading is None else reading.foreign,
            members=() if reading is None else tuple(map(OvnMemberAnswer.of, reading.members)),
            chassis=() if reading is None else tuple(map(OvnChassisAnswer.of, reading.chassis)),
            troubles=tuple(map(OvnTroubleAnswer.of, driver.troubles)),
        )


class SignCertificateBody(
    StrictForm, example={"whose": "host", "name": "gpu-1", "request": "-----BEGIN CERTIFICATE REQUEST-----\n…"}
):
    """A key of OVN's that wants a certificate."""

    whose: CertificateFor
    """central: a server of the databases, which may write networks; host: one that may write about itself alone."""
    name: str = Field(max_length=MAX_NAME)
    """What a host is called to OVN, as here; a central server as its machine. Letters, digits, '.', '_' and '-'."""
    request: str = Field(max_length=8192)
    """PKCS #10 in PEM, of an ECDSA key; nothing but the key is taken."""


class SignedCertificateAnswer(CopiedAnswer, copies=SignedCertificate):
    """What belongs beside the key."""

    ends_at: Moment
    """When the certificate ends."""
