# SPDX-License-Identifier: Apache-2.0
"""The identity provider: OpenID Connect Core 1.0 and Discovery 1.0."""
