# SPDX-License-Identifier: Apache-2.0
"""The controllers that share this database: that they live, where they are reached, who is invited."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, insert, select, update

from orchestrator.core.controller import Door, controller_of
from orchestrator.store.statements import Statements
from orchestrator.store.tables import controller_doors, controllers, invitations, unreached_hosts


class Controllers:
    """Who else executes operations of this database."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def beat(self, name: str) -> dict[str, int]:
        """Say that ``name`` lives; every controller's count."""
        more = update(controllers).where(controllers.c.name == name).values(beats=controllers.c.beats + 1)
        if self._db.execute(more).rowcount == 0:
            self._db.execute(insert(controllers).values(name=name, beats=1))
        return {row.name: row.beats for row in self._db.execute(select(controllers))}

    def remove(self, name: str) -> None:
        """It has stopped in good order, or is gone. Gone already is fine."""
        self._db.execute(delete(controllers).where(controllers.c.name == name))
        self._db.execute(delete(unreached_hosts).where(unreached_hosts.c.controller == name))

    def miss(self, name: str, host: str) -> bool:
        """Write down that it does not reach a host; whether another one that lives does, as far as is known."""
        missing = self.missing(host)
        if name not in missing:
            self._db.execute(insert(unreached_hosts).values(controller=name, host=host))
        return bool(self._living() - {name, *missing})

    def reach(self, name: str, host: str) -> None:
        its = (unreached_hosts.c.controller == name, unreached_hosts.c.host == host)
        self._db.execute(delete(unreached_hosts).where(*its))

    def missed(self, name: str) -> frozenset[str]:
        """Hosts that it does not reach."""
        its = select(unreached_hosts.c.host).where(unreached_hosts.c.controller == name)
        return frozenset(self._db.execute(its).scalars())

    def missing(self, host: str) -> tuple[str, ...]:
        """Controllers that do not reach it, by name."""
        its = select(unreached_hosts.c.controller).where(unreached_hosts.c.host == host)
        return tuple(self._db.execute(its.order_by(unreached_hosts.c.controller)).scalars())

    def apart(self) -> dict[str, str]:
        """Hosts that some of those that live reach and others do not: which one is to work there."""
        missing: dict[str, set[str]] = {}
        for row in self._db.execute(select(unreached_hosts)):
            missing.setdefault(row.host, set()).add(row.controller)
        living = self._living() if missing else set[str]()
        reached = {host: living - names for host, names in missing.items() if living & names}
        return {host: min(names) for host, names in reached.items() if names}

    def _living(self) -> set[str]:
        return set(self._db.execute(select(controllers.c.name)).scalars())

    def put_door(self, door: Door) -> None:
        """Where the others reach it from now on."""
        self.remove_door(door.name)
        self._db.execute(insert(controller_doors).values(asdict(door)))

    def remove_door(self, name: str) -> None:
        self._db.execute(delete(controller_doors).where(controller_doors.c.name == name))

    def doors(self) -> tuple[Door, ...]:
        """By name; also of those that do not run now."""
        rows = self._db.execute(select(controller_doors).order_by(controller_doors.c.name))
        return tuple(Door(**row._asdict()) for row in rows)

    def living_doors(self) -> tuple[Door, ...]:
        """By name; of those alone of which a process lives."""
        living = {controller_of(process) for process in self._living()}
        return tuple(door for door in self.doors() if door.name in living)

    def invite(self, invitation_id: str, digest: str, now: float, expires_at: float) -> None:
        """``digest``: SHA-256 of its secret. Those that are over by now are forgotten."""
        self._db.execute(delete(invitations).where(invitations.c.expires_at <= now))
        self._db.execute(insert(invitations).values(id=invitation_id, digest=digest, expires_at=expires_at))

    def use_invitation(self, invitation_id: str, digest: str, now: float) -> bool:
        """The row is the right to use it: of two at the same time, one takes it away."""
        good = (
            invitations.c.id == invitation_id,
            invitations.c.digest == digest,
            invitations.c.expires_at > now,
        )
        return self._db.execute(delete(invitations).where(*good)).rowcount == 1
