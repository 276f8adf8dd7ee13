#!/usr/bin/env bash
# The commands of docs/operations.md, in an order that leaves the small lab as it was: rolled out.
set -euo pipefail

ansible-playbook -i inventory/docker-small playbooks/preflight.yml
make plan INVENTORY=inventory/docker-small
.venv/bin/python scripts/plan.py -i inventory/docker-small --limit broker --json
ansible-playbook -i inventory/docker-small playbooks/down.yml --limit dc-east-haproxy-1
if ansible-playbook -i inventory/docker-small playbooks/health.yml; then exit 1; fi
ansible-playbook -i inventory/docker-small playbooks/site.yml
ansible-playbook -i inventory/docker-small playbooks/health.yml -e health_since=1m
ansible-playbook -i inventory/docker-small playbooks/rolling_restart.yml --limit dc_east
ansible-playbook -i inventory/docker-small playbooks/support_bundle.yml -e support_since=-1h -e support_dir="$PWD/var/support"
test -s var/support/headrace-*.tar.gz
