# The commands of this repository; `make` alone lists them.
SHELL := /bin/bash
PYTHON := .venv/bin/python
# A pipeline is many processes, which shall not all compile the same modules, nor read a program of Ansible's byte by byte.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
PYTEST := $(PYTHON) -m pytest tests --dist loadgroup --no-loadscope-reorder
.DEFAULT_GOAL := help
.PHONY: help setup demo lab lab-down plan chaos test test-acceptance test-long test-lab sim fuzz check bench release terraform-plan clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: Debian packages and .venv
	@scripts/setup

demo: setup ## roll out three datacenters here, replay real traffic, print the verdict
	@$(PYTHON) -m demo

lab: ## start a container for each host of INVENTORY (inventory/docker-small), to roll out on
	@scripts/setup lab
	@$(PYTHON) -m lab up $(if $(INVENTORY),--inventory $(INVENTORY))

lab-down: ## remove what `make lab` started
	@$(PYTHON) -m lab down

plan: setup ## show what a roll-out of INVENTORY (inventory/local) would do; ARGS="--limit HOSTS" (exit 0: nothing, 2: changes)
	@$(PYTHON) scripts/plan.py $(if $(INVENTORY),--inventory $(INVENTORY)) $(ARGS)

chaos: setup ## run a demo in which every supervised process is killed once, at random moments
	@$(PYTHON) scripts/chaos.py

# Five workers for two cores: tests of real processes wait half of their time. The long ones do not, and have time-outs.
test: ## run the tests, each in its short form
	@scripts/setup test
	@$(PYTEST) --numprocesses 5

test-acceptance: ## run what takes longer and a change has to pass, too: roll-outs' checks, docs, switched-off rules
	@scripts/setup test
	@$(PYTEST) --numprocesses 5 -m "acceptance and not long"

test-long: ## run what repeats these deeper: more seeds, longer sessions, a browser (begins none after MINUTES)
	@scripts/setup long
	@$(PYTEST) --numprocesses 2 -m "long and not lab" $(if $(MINUTES),--minutes $(MINUTES))

test-lab: ## roll out, kill, reboot and cut off the small Docker lab (SHORT=1: what .ci/run does of it)
	@scripts/setup lab
	@scripts/setup release
	@$(PYTHON) scripts/release.py
	@$(PYTHON) -m pytest tests/deploy/lab -x -m "lab$(if $(SHORT), and not long)" $(if $(MINUTES),--minutes $(MINUTES))

sim: ## simulate replication, mirrors and audit under SEEDS (1,000) seeds from FROM on, until one fails
	@scripts/setup test
	@$(PYTHON) scripts/sim.py --seeds $(or $(SEEDS),1000) $(if $(FROM),--from $(FROM)) $(if $(ONLY),--only $(ONLY))

fuzz: ## send a broker FRAMES (1,000,000) odd frames from SEED, between sessions of an ordinary client
	@scripts/setup test
	@$(PYTHON) scripts/fuzz.py --frames $(or $(FRAMES),1000000) $(if $(SEED),--seed $(SEED))

check: ## lint, types, import contracts, playbooks
	@scripts/setup test
	@scripts/check

bench: ## measure a broker beside Apache Kafka, the mirror and the load; writes docs/benchmarks.md
	@scripts/setup bench
	@$(PYTHON) -m bench

release: ## build dist/headrace-VERSION/ for hosts: a bundle for each group of them, and a manifest of hashes
	@scripts/setup release
	@$(PYTHON) scripts/release.py $(if $(VERSION),--version $(VERSION))

terraform-plan: ## plan the examples of terraform/, against moto where there are no AWS credentials
	@scripts/setup test
	@$(PYTHON) scripts/terraform_plan.py

clean: ## remove what the commands made, but for .venv
	@if [ -S var/local/supervisor.sock ]; then \
	    echo "A pipeline is running here: stop it with ansible-playbook -i inventory/local playbooks/down.yml." >&2; exit 1; fi
	@rm -rf var .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
