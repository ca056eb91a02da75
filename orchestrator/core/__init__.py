# SPDX-License-Identifier: Apache-2.0
"""What should happen: pure models and decisions. No IO, clock, randomness or logging in here.

Runs on the GPU hosts too (inside the agent), so: Python 3.10, standard library only.
"""
