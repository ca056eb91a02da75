# SPDX-License-Identifier: Apache-2.0
"""Who may do what, and how much: tenants, members, tokens, quotas, policies."""
