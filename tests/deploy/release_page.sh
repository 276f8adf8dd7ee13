#!/usr/bin/env bash
# The commands of docs/rollout.md about releases, run by test_deploy_release.py.
set -euo pipefail

make release
python -m json.tool dist/headrace-0.1.0/manifest.json
