#!/usr/bin/env bash
# The commands of docs/rollout.md, in an order that shows what each one leaves behind.
set -euo pipefail

ansible-playbook -i inventory/local playbooks/preflight.yml
ansible-playbook -i inventory/local playbooks/site.yml --check --diff
test ! -e var/local
ansible-playbook -i inventory/local playbooks/site.yml
fab status
fab drain --service dc-east-broker-1
if fab status | grep -q 'dc-east-broker-1 .*RUNNING'; then exit 1; fi
fab restore --service dc-east-broker-1
fab status | grep -q 'dc-east-broker-1 .*\(STARTING\|RUNNING\)'
fab down
test ! -e var/local/supervisor.sock
ansible-playbook -i inventory/local playbooks/down.yml
