#!/usr/bin/env bash
# The commands of docs/observability.md; a second run changes nothing.
set -euo pipefail

ansible-playbook -i inventory/local playbooks/prometheus.yml
promtool check config var/prometheus/local/prometheus.yml
again=$(ansible-playbook -i inventory/local playbooks/prometheus.yml)
if grep 'changed=[1-9]' <<<"$again"; then exit 1; fi
