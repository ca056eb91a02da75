# SPDX-License-Identifier: Apache-2.0
# Two commands matter: `make demo` and `make test`. Each installs what it needs. `make help` lists the others.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# Where it is set, as in many containers, each of the many processes below compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
LOCK := requirements/dev.txt

# The environment is ready for exactly these inputs; any other content asks for a new one.
READY := $(VENV)/.ready-$(shell cat $(LOCK) pyproject.toml packages/dev.txt | sha256sum | cut -c1-16)
ENSURE := packages/ensure
GENERATED := orchestrator/client/generated/models.py

.PHONY: help dev demo demo-down test test-lab check lint soak mutants data-check isv bench docs record-session record-session-lab dist sbom clean \
        check-format check-lint check-types check-imports check-dependencies check-dead-code check-units check-licences

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | sort | awk -F'|' '{printf "  %-18s %s\n", $$1, $$2}'

dev: $(READY) $(GENERATED) ## create .venv; the command is then .venv/bin/vgpuctl

$(READY):
	@$(ENSURE) packages/dev.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("error: Python 3.11 or newer is needed, this is %d.%d; choose one with PYTHON=" % v[:2])'
	@echo "creating $(VENV) from $(LOCK)"
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' $(LOCK) > $(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(VENV)/uv.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes $(LOCK)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@rm -f $(VENV)/.ready-*
	@touch $@

$(GENERATED): tools/client_code.py tools/api.json $(addprefix orchestrator/client/,client.py site_calls.py disk_calls.py health_calls.py) | $(READY)
	@$(BIN)/python tools/client_code.py

demo: dev lab-packages ## from a lab host without a driver to a running VM with a vGPU
	@demo/run

demo-down: dev ## end what `make demo` left running
	@demo/end

test: dev lab-packages ## every test that needs no GPU, with a VM of each kind on a lab host
	@status=0; $(PYTEST) --cache-clear -n 6 --dist worksteal --durations=20 -m "not lab and not gpu and not soak" || status=$$?; \
	[ $$status != 1 ] || ! $(BIN)/python -m tests.second_run || status=0; \
	$(MAKE) --no-print-directory test-straight-paths || status=$$?; exit $$status

test-lab: dev lab-packages ## what `make test` leaves of the tests on lab hosts, two hosts at once; LAB_SHARES="t4 a100" chooses
	@status=0; $(MAKE) --no-print-directory --keep-going --output-sync=target -j2 $(addprefix test-lab-,$(LAB_SHARES)) || status=$$?; \
	$(MAKE) --no-print-directory $(addprefix test-lab-,$(LAB_THREE)) || status=$$?; exit $$status

include tests/lab/shares.mk

soak: dev lab-packages ## the runs that take hours; SOAK_TESTS chooses some; counts go to docs/reference/soak.md
	@status=0; mkdir -p build; \
	$(PYTEST) -m soak --timeout=0 --junitxml=build/soak.xml $(SOAK_TESTS) | tee build/soak.log || status=$$?; \
	$(BIN)/python -m tests.soak build/soak.xml build/soak.log; exit $$status
SOAK_TESTS ?= tests

mutants: dev ## change each expression of the modules that pyproject.toml names, and list what no test notices
	@mkdir -p build; [ -x build/mutmut/bin/python ] || $(PYTHON) -m venv build/mutmut
	@$(BIN)/uv pip sync --quiet --python build/mutmut/bin/python --require-hashes $(LOCK) requirements/mutants.txt
	@build/mutmut/bin/mutmut run $(MUTANTS)
	@build/mutmut/bin/mutmut results

data-check: dev ## what the captures of drivers in FIXTURES say and vgpu_profiles/nvidia lacks
	@$(BIN)/python -m tests.unit.catalogue.data_check $(FIXTURES)
FIXTURES ?= tests/unit/catalogue/captures

isv: dev ## judge a simulated site, or LAB_HOST, with a clone of NVIDIA/ai-cloud-validation in SUITE; writes docs/reference/isv.md
	@[ -n "$(SUITE)" ] || { echo "error: say where the suite is: make isv SUITE=/path/to/ai-cloud-validation"; exit 2; }
	@$(BIN)/python -m tests.integrations $(SUITE) $(if $(ISV_PYTHON),--python $(ISV_PYTHON)) $(if $(LAB_HOST),--lab-host $(LAB_HOST))

# One more at once than there are processors, as tests also wait for the disk; the long ones first.
BESIDE_EACH_OTHER = $(MAKE) --no-print-directory --keep-going --output-sync=target -j$$(($$(nproc) + 1))
JUDGES := check-types lint-ansible lint-collection check-dead-code check-dependencies check-imports check-lint \
  check-licences check-format check-units
check: dev ## format, lint, types, import contracts, dead code, fast tests
	@$(BESIDE_EACH_OTHER) $(SHARES) $(JUDGES)

lint: dev ## what check does without running tests
	@$(BESIDE_EACH_OTHER) $(JUDGES)

check-format:
	@$(BIN)/ruff format --check --quiet . || { echo "format: run $(BIN)/ruff format ."; exit 1; }
check-lint:
	@$(BIN)/ruff check --quiet .
check-types:
	@$(BIN)/mypy --no-error-summary
check-imports:
	@$(BIN)/lint-imports --no-cache > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
check-dependencies:
	@$(BIN)/deptry --no-ansi . > $(VENV)/deptry.log 2>&1 || { cat $(VENV)/deptry.log; exit 1; }
check-dead-code:
	@$(BIN)/vulture
check-units:
	@$(BIN)/python -m tools.units
check-licences:
	@$(BIN)/python -m tools.licences --check
.PHONY: lint-ansible lint-collection
UNLESS_GREEN := packages/unless-green
lint-ansible: dev ## playbooks, roles and inventories under ansible-lint's strictest profile
	@$(UNLESS_GREEN) $@ playbooks inventory tests/playbooks/plays packages/$@ requirements/$@.txt -- packages/$@
lint-collection: dev ## the Ansible collection under ansible-test's sanity tests
	@$(UNLESS_GREEN) $@ collections packages/$@ requirements/$@.txt $(LOCK) -- packages/$@
# Shares of tests/unit that take about alike, each in a process that imports and collects its own alone. Whatever is in
# no other share is in check-tests-left, the only one with its files on a disk: it has images, which are refused below /dev.
SHARES := check-tests-cli check-tests-hosts check-tests-left check-tests-pure check-tests-services
.PHONY: $(SHARES)
OF_cli := $(addprefix tests/unit/,cli client)
OF_hosts := $(addprefix tests/unit/,agent lab)
OF_pure := $(addprefix tests/unit/,catalogue core geometry placement simulate_placement)
OF_services := $(addprefix tests/unit/,reconcile services)
OF_left := $(filter-out $(OF_cli) $(OF_hosts) $(OF_pure) $(OF_services),$(wildcard tests/unit/[a-z]*)) tests/architecture
$(SHARES): check-tests-%:
	@$(if $(filter-out $*,left),VGPUCTL_TESTS_IN_MEMORY=1) $(PYTEST) -o tmp_path_retention_policy=failed $(OF_$*) -m "not lab and not gpu and not soak"

bench: bench-placement bench-control-plane bench-server bench-api bench-web bench-upgrade bench-moves bench-readings bench-networks bench-health bench-power bench-create-vm bench-discovery ## all benchmarks; rows go to build/bench/*.json

.PHONY: bench-placement bench-control-plane bench-server bench-api bench-web bench-upgrade bench-moves bench-readings bench-networks bench-health bench-power bench-create-vm bench-discovery
bench-placement: dev ## placement quality and speed
	@$(BIN)/python -m tests.bench.placement
bench-control-plane: dev ## claims, operations over HTTP, 1,000 SSH connections, memory; BENCH_CONTROL_PLANE="--part operations --policy sqlite" chooses
	@$(ENSURE) tests/bench/control_plane/packages.txt
	@$(BIN)/python -m tests.bench.control_plane $(BENCH_CONTROL_PLANE)
bench-server: dev ## a real server over HTTP with 10, 1,000 and 10,000 hosts; BENCH_SERVER="--hosts 10 --policy sqlite" chooses
	@$(ENSURE) tests/bench/control_plane/packages.txt
	@$(BIN)/python -m tests.bench.server_path $(BENCH_SERVER)
bench-api: dev ## answers of the API under 64 clients, of commands, with 10,000 VMs
	@$(BIN)/python -m tests.bench.api
bench-web: dev ## pages of fleets of 100 to 10,000 hosts in a real browser: first paint, size, processor, 200 people looking
	@$(BIN)/python -m tests.bench.web $(BENCH_WEB)
bench-upgrade: dev lab-packages ## rolling driver upgrade of 1,000 hosts in virtual time, of three lab hosts; BENCH_UPGRADE="--case lab" chooses
	@$(BIN)/python -m tests.bench.upgrade $(BENCH_UPGRADE)
bench-moves: dev lab-packages ## moves between two lab hosts against virsh alone, a drain of 16 VMs; BENCH_MOVES="--case drain" chooses
	@$(BIN)/python -m tests.bench.moves $(BENCH_MOVES)
bench-readings: dev lab-packages ## what readings of hosts cost a server and a host; BENCH_READINGS="--part process" chooses
	@$(BIN)/python -m tests.bench.readings $(BENCH_READINGS)
bench-networks: dev ## networks of kind ovn in a real northbound: 20,000 ports, one card against the bare transaction
	@$(BIN)/python -m tests.bench.networks
bench-health: dev ## a year of faults of 1,000 hosts in virtual time
	@$(BIN)/python -m tests.bench.health
bench-power: dev ## budgets of power of 1,000 hosts in virtual time
	@$(BIN)/python -m tests.bench.power
bench-create-vm: dev lab-packages ## create-vm of each kind against the same VM made by hand; BENCH_CREATE_VM="--case passthrough" chooses
	@$(ENSURE) tests/bench/packages.txt
	@$(BIN)/python -m tests.bench.create_vm $(BENCH_CREATE_VM)
bench-discovery: dev lab-packages ## all of a host with eight GPUs as the agent tells it, against bare calls of NVML
	@$(BIN)/python -m tests.bench.discovery

docs: dev ## write the generated pages of docs/reference again
	@$(BIN)/python -m tools.cli_reference > docs/reference/cli.md
	@$(BIN)/python -m tools.error_reference
	@$(BIN)/python -m tools.api_description
	@$(BIN)/python -m tools.api_examples
	@$(BIN)/python -m tools.collection_options
	@$(BIN)/python -m tools.settings_reference
	@$(BIN)/python -m tools.bounds_reference
	@$(BIN)/python -m tools.shipped_offerings
	@$(BIN)/python -m tools.fault_reference
	@$(BIN)/python -m tools.hostile_reference
	@$(BIN)/python -m tools.licences

record-session: dev ## type the session of docs/tutorial/three-persons.md again, on simulated hosts
	@$(BIN)/python -m tests.session

record-session-lab: dev lab-packages ## the same on two lab hosts, docs/tutorial/three-persons-lab.md
	@$(BIN)/python -m tests.session --lab

dist: dev ## what is installed elsewhere, into build/dist: a wheel, what a server runs with by hash, a Debian package
	@$(ENSURE) packages/dist.txt
	@rm -rf build/dist; packages/wheel build/dist; packages/deb build/dist
	@ls -l build/dist

sbom: dev ## what we ship with, as CycloneDX from the lock file: build/sbom.cdx.json
	@mkdir -p build; [ -x build/sbom/bin/cyclonedx-py ] || $(PYTHON) -m venv build/sbom
	@$(BIN)/uv pip sync --quiet --python build/sbom/bin/python --require-hashes requirements/sbom.txt
	@build/sbom/bin/cyclonedx-py requirements requirements/base.txt --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-format JSON --output-file build/sbom.cdx.json 2>/dev/null
	@echo "build/sbom.cdx.json: $$(grep -c '"purl"' build/sbom.cdx.json) packages"

clean: ## remove build/ and caches; the lab must be down
	@[ -z "$$(ls -d build/lab/hosts build/lab/*/hosts 2>/dev/null)" ] || { echo "error: the lab has state, run make lab-down first"; exit 1; }
	@rm -rf build mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: lab-packages
lab-packages:
	@$(ENSURE) lab/packages.txt

include lab/lab.mk
