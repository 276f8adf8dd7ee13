# The command of docs/events-and-audit.md that says what groups have read, run by test_e2e_audit_faults.py.
set -e
headrace audit groups --json --groups 'billing|search-.*' --since 6h --bootstrap $LIVE
