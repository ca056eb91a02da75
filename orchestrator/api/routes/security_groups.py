# SPDX-License-Identifier: Apache-2.0
"""/v1/security-groups"""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import AboutAnswer, AnswerBody, DescribeBody, Name, NameInPath
from orchestrator.api.services import SelectorOf, ServicesOf, TenantFilter, TenantOf
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.labels import selects
from orchestrator.core.security_groups import MAX_RULES, Direction, NamedUse, Protocol, SecurityGroup, SecurityRule
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.services.security_groups import GroupInfo


class SecurityRuleBody(StrictForm, example={"direction": "in", "protocol": "tcp", "first_port": 22}):
    """What it allows or refuses; with neither ``remote`` nor ``group`` from or to anywhere."""

    direction: Direction
    """in: to the VM; out: from it."""
    protocol: Protocol = "any"
    """any: all of IPv4 and IPv6."""
    first_port: int | None = None
    """Of the receiver, of TCP and UDP alone; null: every one."""
    last_port: int | None = None
    """The last of a range; null: the first alone."""
    remote: str | None = Field(default=None, max_length=64)
    """IPv4 or IPv6 range of the other side."""
    group: Name | None = None
    """The other side is a card of this group of the tenant's."""
    refuse: bool = False
    """It lets nothing of it pass, whatever rules of the card's groups allow."""

    def rule(self) -> SecurityRule:
        return SecurityRule(**self.model_dump())


class CreateSecurityGroupBody(StrictForm, example={"name": "web", "tenant": "research"}):
    """A security group. The same name and rules again mean the same group."""

    name: Name
    """What it is called."""
    tenant: Name = "default"
    """Whose it is."""
    rules: list[SecurityRuleBody] | None = Field(default=None, max_length=MAX_RULES)
    """null: out to anywhere, and nothing in."""


class ChangeRulesBody(StrictForm, example={"add": [{"direction": "in", "protocol": "tcp", "first_port": 443}]}):
    """Rules that come and go, all at once."""

    add: list[SecurityRuleBody] = Field(default=[], max_length=MAX_RULES)
    """Those that it has already are fine."""
    remove: list[SecurityRuleBody] = Field(default=[], max_length=MAX_RULES)
    """As they are listed."""


class GroupUseBody(StrictForm, example={"vm": "train"}):
    """A VM, a network, or the VM's card on the network."""

    vm: Name | None = None
    """Name of a VM of the tenant; null: all of the tenant's on the network."""
    network: Name | None = None
    """Name of a network; null: every card of the VM."""

    def use(self) -> NamedUse:
        return NamedUse(vm=self.vm, network=self.network)


class ChangeUsesBody(StrictForm, example={"add": [{"vm": "train"}]}):
    """Where a group is put, and where it is taken from, all at once."""

    add: list[GroupUseBody] = Field(default=[], max_length=100)
    """Where it is already is fine."""
    remove: list[GroupUseBody] = Field(default=[], max_length=100)
    """Where it is not is fine."""


class SecurityRuleAnswer(AnswerBody, copies=SecurityRule):
    """What a rule allows or refuses."""


class GroupUseAnswer(AnswerBody, copies=NamedUse):
    """What a group is on."""


class SecurityGroupAnswer(AboutAnswer):
    """Rules for network cards. What none of a card's groups allows, or one refuses, does not pass; answers do."""

    copied_from = (SecurityGroup,)

    name: str
    """What it is called."""
    tenant: str
    """Whose it is."""
    rules: tuple[SecurityRuleAnswer, ...]
    uses: tuple[GroupUseAnswer, ...]
    """The VMs, cards and networks that it is on; of ``default`` beside those every card that has no group."""

    @classmethod
    def of(cls, info: GroupInfo) -> SecurityGroupAnswer:
        return cls.copied_about(info.group, info.group.about, uses=info.uses)


router = APIRouter(prefix="/security-groups", tags=["networks"])


@router.post("", status_code=201)
def create(response: Response, body: CreateSecurityGroupBody, services: ServicesOf) -> SecurityGroupAnswer:
    """Create a security group. Without rules of its own it lets everything out and nothing in."""
    located(response, "security-groups", body.name)
    rules = None if body.rules is None else [rule.rule() for rule in body.rules]
    return SecurityGroupAnswer.of(services.security_groups.create(body.tenant, body.name, rules))


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, selector: SelectorOf, tenant: TenantFilter = None
) -> list[SecurityGroupAnswer]:
    """List security groups. By tenant and name; each tenant has one called ``default``."""
    theirs = services.security_groups.list(caller.visible(tenant))
    selected = (info for info in theirs if selects(selector, info.group.about.labels))
    return paging.answers(
        SecurityGroupAnswer, selected, lambda info: (info.group.tenant, info.group.name), SecurityGroupAnswer.of
    )


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> SecurityGroupAnswer:
    """Get a security group."""
    return SecurityGroupAnswer.of(services.security_groups.get(tenant, name))


@router.patch("/{name}")
def describe(
    name: NameInPath, body: DescribeBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> SecurityGroupAnswer:
    """Describe a security group. Set description and labels; those not named stay."""
    return SecurityGroupAnswer.of(services.security_groups.describe(tenant, name, body.description, body.labels))


@router.post("/{name}/rules")
def change_rules(
    name: NameInPath, body: ChangeRulesBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> SecurityGroupAnswer:
    """Change a security group's rules. All that is added and removed, or nothing."""
    add, remove = ([rule.rule() for rule in rules] for rules in (body.add, body.remove))
    return SecurityGroupAnswer.of(services.security_groups.change_rules(tenant, name, add, remove))


@router.post("/{name}/uses")
def change_uses(
    name: NameInPath, body: ChangeUsesBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> SecurityGroupAnswer:
    """Put a security group on VMs, cards and networks, and take it from others. All of it, or nothing."""
    add, remove = ([use.use() for use in uses] for uses in (body.add, body.remove))
    return SecurityGroupAnswer.of(services.security_groups.change_uses(tenant, name, add, remove))


@router.delete("/{name}", status_code=204)
def delete(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Delete a security group that is on nothing, and that no rule names."""
    services.security_groups.delete(tenant, name)
