# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults, and which test asserts what must hold after each."""
