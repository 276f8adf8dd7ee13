# The way up of docs/terraform.md, run by test_deploy_terraform_apply.py in a copy of the checkout, against moto.
set -euo pipefail

terraform -chdir=terraform/pipeline init
terraform -chdir=terraform/pipeline plan -var-file=examples/small.tfvars -out=small.plan
terraform -chdir=terraform/pipeline apply small.plan
python scripts/terraform_inventory.py
ansible-inventory -i inventory/aws --graph
ansible-playbook -i inventory/aws playbooks/preflight.yml --tags inventory
# Moto's machines are nobody to talk to: of what follows only the syntax is checked.
ansible-playbook -i inventory/aws playbooks/site.yml --syntax-check
