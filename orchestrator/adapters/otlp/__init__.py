# SPDX-License-Identifier: Apache-2.0
"""Metrics and events for a collector, by OpenTelemetry's SDK."""
