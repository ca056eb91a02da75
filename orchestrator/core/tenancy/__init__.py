# SPDX-License-Identifier: Apache-2.0
"""Tenants: access, quotas, audit."""
