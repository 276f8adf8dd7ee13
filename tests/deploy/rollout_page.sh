#!/usr/bin/env bash
# The commands of docs/rollout.md, in an order that shows what each one leaves behind.
set -euo pipefail

ansible-playbook -i inventory/local playbooks/preflight.yml
ansible-playbook -i inventory/local playbooks/site.yml --check --diff
test ! -e var/local
ansible-playbook -i inventory/local playbooks/site.yml
again=$(ansible-playbook -i inventory/local playbooks/site.yml)
if grep 'changed=[1-9]' <<<"$again"; then exit 1; fi
ansible-playbook -i inventory/local playbooks/rolling_restart.yml --limit dc_east
headrace broker --check var/local/config/dc-east-broker-1/server.properties
fab status
fab drain --service dc-east-broker-1
if fab status | grep 'dc-east-broker-1 .*RUNNING' >/dev/null; then exit 1; fi
fab restore --service dc-east-broker-1
fab status | grep 'dc-east-broker-1 .*\(STARTING\|RUNNING\)' >/dev/null
fab down
test ! -e var/local/supervisor.sock
ansible-playbook -i inventory/local playbooks/down.yml
