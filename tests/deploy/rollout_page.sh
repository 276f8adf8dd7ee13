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
ansible-playbook -i inventory/local playbooks/rolling_restart.yml --tags haproxy,registry
headrace broker --check var/local/config/dc-east-broker-1/server.properties
fab status
fab drain --host dc-east-broker-1 --reason 'its disk is replaced'
drained=$(fab status)
if grep 'dc-east-broker-1 .*RUNNING' <<<"$drained"; then exit 1; fi
grep 'dc-east-broker-1 is drained since .*: its disk is replaced' <<<"$drained"
fab restore --host dc-east-broker-1
fab status | grep 'dc-east-broker-1 .*RUNNING' >/dev/null
ansible-playbook -i inventory/local playbooks/drain.yml --limit dc-east-broker-2 -e "drain_reason='its disk is replaced'"
ansible-playbook -i inventory/local playbooks/restore.yml --limit dc-east-broker-2
ansible-playbook -i inventory/local playbooks/drained.yml
fab down
test ! -e var/local/supervisor.sock
ansible-playbook -i inventory/local playbooks/down.yml
