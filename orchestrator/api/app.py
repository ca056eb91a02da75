# SPDX-License-Identifier: Apache-2.0
"""Puts routes, limits and errors together into one ASGI application."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import BaseRoute

from orchestrator.api import errors
from orchestrator.api.allowance import within_allowance
from orchestrator.api.auth import KnowTheSender, LatelyKnown, authorize
from orchestrator.api.event_feed import EventFeed
from orchestrator.api.http_answers import AnswerHead, AnswerOnlyChanges
from orchestrator.api.http_requests import (
    json_bodies_only,
    no_conditional_changes,
    no_repeated_names,
    only_known_parameters,
    storable_target,
)
from orchestrator.api.limits import CountRequests, LimitBody
from orchestrator.api.metrics import Metrics, TimeAnswers
from orchestrator.api.openapi import PROBLEMS, DescribedApi, operation_id
from orchestrator.api.refusals import RecordRefusals
from orchestrator.api.request_keys import AnsweredBefore, KeepAnswers, answer_again, look_up_key
from orchestrator.api.route_table import RouteTable
from orchestrator.api.routes import (
    audit,
    backup_policies,
    backups,
    capacity,
    console_sessions,
    controllers,
    disk_snapshots,
    driver_bundles,
    driver_lock,
    driver_upgrade,
    events,
    findings,
    floating_addresses,
    gpu_cleanings,
    gpu_health,
    gpus,
    guest_streams,
    guests,
    health,
    hosts,
    images,
    maintenances,
    mig_layouts,
    network_cards,
    network_driver,
    network_paths,
    network_traffic,
    networks,
    offerings,
    operations,
    policies,
    pools,
    power,
    profiles,
    quotas,
    readings,
    scraping,
    security_groups,
    server,
    status,
    suspended_vms,
    tenants,
    tokens,
    vms,
    volume_snapshots,
    volumes,
    webhooks,
    whoami,
)
from orchestrator.api.services import Process
from orchestrator.api.use_cases import Services
from orchestrator.api.waiting import Waiting
from orchestrator.client.version import VERSION


def create_app(services: Services, process: Process) -> FastAPI:
    """The application. Every HTTP route asks who is there; websockets do so themselves before they open."""
    app = DescribedApi(
        title="vgpuctl",
        version=VERSION,
        summary="VMs with NVIDIA vGPUs, MIG partitions and whole GPUs on KVM hosts",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=all_routes(),
    )
    app.state.services = services
    app.state.process = process
    app.state.lately_known = LatelyKnown()
    app.state.waiting = Waiting(services.operations)
    app.state.event_feed = EventFeed(services.events)
    app.state.metrics = Metrics(services, process)
    app.state.routes = RouteTable(app.routes)
    errors.install(app)
    app.add_exception_handler(AnsweredBefore, answer_again)
    app.add_middleware(LimitBody)
    app.add_middleware(KnowTheSender)
    app.add_middleware(KeepAnswers)
    app.add_middleware(RecordRefusals)
    app.add_middleware(AnswerOnlyChanges)
    app.add_middleware(AnswerHead)
    app.add_middleware(TimeAnswers, metrics=app.state.metrics)
    app.add_middleware(CountRequests, activity=process.activity)
    return app


@cache
def all_routes() -> list[BaseRoute]:
    """The same for each application of a process: working them out takes a third of a second."""
    checks = [
        Depends(storable_target),
        Depends(authorize),
        Depends(json_bodies_only),
        Depends(no_conditional_changes),
        Depends(only_known_parameters),
        Depends(no_repeated_names),
        Depends(within_allowance),
        Depends(look_up_key),
    ]
    v1 = APIRouter(dependencies=checks, responses=PROBLEMS)
    for noun in (  # looked through in this order, several times for a request: what is asked most often comes first
        operations,
        vms,
        console_sessions,
        hosts,
        gpu_cleanings,
        gpu_health,
        power,
        gpus,
        profiles,
        images,
        mig_layouts,
        network_driver,
        network_paths,
        networks,
        network_traffic,
        floating_addresses,
        security_groups,
        volume_snapshots,
        volumes,
        pools,
        offerings,
        driver_bundles,
        driver_lock,
        driver_upgrade,
        maintenances,
        guests,
        network_cards,
        suspended_vms,
        disk_snapshots,
        backup_policies,
        backups,
        capacity,
        findings,
        readings,
        scraping,
        status,
        server,
        tenants,
        tokens,
        quotas,
        policies,
        audit,
        whoami,
        events,
        webhooks,
    ):
        v1.include_router(noun.router)
    v1.include_router(networks.of_tenant)
    v1.include_router(images.of_tenant)
    routes = APIRouter(generate_unique_id_function=operation_id)
    routes.include_router(v1, prefix="/v1")  # a prefix of its own would make FastAPI work through all routes once more
    routes.include_router(guest_streams.router, prefix="/v1")
    routes.include_router(console_sessions.streams, prefix="/v1")
    routes.include_router(health.router)
    routes.include_router(controllers.router)
    return routes.routes
