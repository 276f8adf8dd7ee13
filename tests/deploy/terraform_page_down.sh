# The way down of docs/terraform.md, run by test_deploy_terraform_apply.py after terraform_page_up.sh.
set -euo pipefail

terraform -chdir=terraform/pipeline destroy -var-file=examples/small.tfvars -auto-approve
