# The commands of docs/events-and-audit.md that load a window again, run by test_e2e_audit_faults.py.
set -e
headrace audit reload --dry-run --json --topic dc-east.pageviews --window $WINDOW --bootstrap $OFFLINE --registry $REGISTRY --warehouse $WAREHOUSE
headrace audit reload --json --topic dc-east.pageviews --window $WINDOW --bootstrap $OFFLINE --registry $REGISTRY --warehouse $WAREHOUSE
