# SPDX-License-Identifier: Apache-2.0
"""A recorded session of three persons at one site: who runs it, a tenant elsewhere, and a program."""
