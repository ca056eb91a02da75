# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: requests in, service calls, answers out. pydantic stands here and nowhere further in."""
