# SPDX-License-Identifier: Apache-2.0
# What is tested on lab hosts, by the host (docs/decisions/tests.md).
ON_HOST := tests/lab/on-host
of_lab = $(foreach name,$(1),$(wildcard tests/lab/test_$(name).py tests/scenarios/test_$(name).py))

# Each brings its host up, or what its files need where there is no scenario of that name, and ends it. The long first.
# A host that files share is enrolled until the last of them ends: those that enrol theirs themselves are in another
# share. What brings up three comes at last, alone.
LAB_THREE ?= three
LAB_SHARES ?= upgrade t4 sizes a100 mixed two-alike pools machines bare h100-hgx rtx-pro-6000 l40s various two-nodes rdma networks
ON_t4 := install_role_on_t4 kernel_t4 agent_on_host straight_path kill faults health killed_daemons guests_apart \
  data_volumes guest_agent disk_snapshots backups backups_as_vms confinement tpm display consoles_in_browser
ON_upgrade := driver_upgrade agent_upgrade near_memory server_under_its_unit restored
ON_l40s := kernel_l40s faults health reboot confinement
ON_sizes := mixed_sizes schedulers two_vgpus
ON_a100 := kernel_a100 mig_backed mig_mediated mig_layout
ON_mixed := kernel_mixed whole_gpu cleaning card_gone
ON_two-alike := live_moves suspended cleaning_moves moves
ON_pools := pools
ON_various := back_after_resets readings
ON_h100-hgx := kernel_h100_hgx fabric
ON_rtx-pro-6000 := kernel_rtx_pro_6000 shared_instances
ON_three := rolling_upgrade
ON_bare := bare_host prepared_host
ON_two-nodes := pinned_cpus
ON_rdma := network_functions
ON_networks := networks
ON_machines := debian_guest power_cuts
# Files that are in several shares say by their tests' ids which host each of them uses.
ONLY_t4 := -k "not l40s"
ONLY_l40s := -k "not t4"

test-lab-%:
	@$(ON_HOST) $* $(ONLY_$*) $(call of_lab,$(ON_$*))

# A VM of each kind on the host that has a GPU of each.
.PHONY: test-straight-paths
test-straight-paths:
	@$(ON_HOST) mixed $(call of_lab,kinds)
