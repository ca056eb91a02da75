# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.contract.web.conftest import Site
from tests.contract.web.test_views import LIVE, shown


def test_a_vm_s_page_tells_where_it_may_move_and_its_tenant_what_keeps_it(site: Site) -> None:
    page = "/web/vms/default/train"
    operator = site.logged_in(site.token("*", "admin"))
    everywhere = operator.get(page).text
    assert shown(everywhere).count("it is there already") == 2
    assert "move.same_host" in everywhere
    only = shown(operator.get(f"{page}?legal=suspended&host=t4").text)
    assert "(its own)" in only
    assert "no host is called" in shown(operator.get(f"{page}?host=nowhere").text)
    own = shown(site.logged_in(site.token("default", "tenant-user")).get(page).text)
    assert "as far as the VM itself goes yes yes yes yes" in own
    assert "(its own)" not in own
    assert "Where it may move" not in operator.get(page, headers=LIVE).text
