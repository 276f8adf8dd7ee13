# The command of docs/events-and-audit.md that counts a window again, run by test_e2e_audit_faults.py.
set -e
headrace audit recount --json --topic dc-east.pageviews --window $WINDOW --live $LIVE --bootstrap $OFFLINE --warehouse $WAREHOUSE
