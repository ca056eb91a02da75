# SPDX-License-Identifier: Apache-2.0
"""Use cases: check the request, one transaction, start the operation. Nothing here touches a host."""
