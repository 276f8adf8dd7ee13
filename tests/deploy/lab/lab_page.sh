#!/usr/bin/env bash
# The commands of docs/lab.md, in an order that shows what each one leaves behind.
set -euo pipefail

make release
make lab
source .venv/bin/activate
ansible-playbook -i inventory/docker-small playbooks/site.yml
docker --host unix:///run/headrace-lab/engine.sock exec dc-east-broker-1 systemctl status headrace-broker-1
docker --host unix:///run/headrace-lab/engine.sock exec dc-east-broker-1 journalctl --unit headrace-broker-1 --lines 20
docker --host unix:///run/headrace-lab/engine.sock restart --time 60 dc-east-broker-1
headrace topics list --bootstrap 10.77.1.100:9092
make release VERSION=0.1.1
ansible-playbook -i inventory/docker-small playbooks/upgrade.yml -e release_version=0.1.1
ansible-playbook -i inventory/docker-small playbooks/rollback.yml
python -m lab cut dc-east
python -m lab mend
python -m lab slow offline --kilobits 500
python -m lab mend
make lab-down
test ! -e /run/headrace-lab
