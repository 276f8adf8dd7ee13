#!/usr/bin/env bash
# The commands of docs/rollout.md about secrets, run by test_deploy_rollout.py with further arguments of the roll-out.
set -euo pipefail

openssl rand -base64 32 | install -m 600 /dev/stdin ~/.headrace-vault
export ANSIBLE_VAULT_PASSWORD_FILE=~/.headrace-vault
ansible-vault encrypt inventory/local/group_vars/offline.yml
ansible-playbook -i inventory/local playbooks/site.yml "$@"
