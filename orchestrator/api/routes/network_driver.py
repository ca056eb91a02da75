# SPDX-License-Identifier: Apache-2.0
"""/v1/network-driver"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.schemas.network_driver import NetworkDriverAnswer, SignCertificateBody, SignedCertificateAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/network-driver", tags=["networks"])


@router.get("")
def get(services: ServicesOf) -> NetworkDriverAnswer:
    """Get the network driver. Which engine makes networks; of OVN its databases, the hosts that it knows and what is
    not as it should be. Databases are asked now."""
    return NetworkDriverAnswer.of(services.network_driver.get())


@router.post("/certificates")
def sign(body: SignCertificateBody, services: ServicesOf) -> SignedCertificateAnswer:
    """Sign a certificate of OVN's, for a host or a central server. Its key stays where it was made."""
    return SignedCertificateAnswer.of(services.network_driver.sign(body.whose, body.name, body.request))
