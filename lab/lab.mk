# SPDX-License-Identifier: Apache-2.0
# The lab by make: SCENARIO="a.yaml b.yaml" for lab-up, NAME=host for lab-ssh and lab-reboot, CMD="..." for lab-ssh.
LAB_PYTHON ?= .venv/bin/python
LAB = $(LAB_PYTHON) -m lab
SCENARIO ?= lab/scenarios/t4.yaml
NAME ?= t4

.PHONY: lab-up lab-down lab-ssh lab-reboot lab-status

lab-up: dev lab-packages ## bring up the GPU hosts of SCENARIO and wait until they are ready
	@$(LAB) up $(foreach file,$(SCENARIO),--scenario $(file))

lab-down: ## end all lab hosts and remove what belongs to them
	@$(LAB) down

lab-ssh: ## log in to lab host NAME, or run CMD there
	@$(LAB) ssh $(NAME) $(if $(CMD),'$(subst ','\'',$(CMD))')

lab-reboot: ## reboot lab host NAME and wait until it is ready
	@$(LAB) reboot $(NAME)

lab-status: ## say which lab hosts there are
	@$(LAB) status
