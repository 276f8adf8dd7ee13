# The commands of docs/events-and-audit.md about further warehouses, run by test_e2e_audit_warehouses.py.
set -e
! headrace audit report --bootstrap $OFFLINE --warehouse $WAREHOUSE --further-warehouse archive=$ARCHIVE --output report-of-both
! headrace audit status --since 3h --bootstrap $OFFLINE --warehouse $WAREHOUSE --further-warehouse archive=$ARCHIVE --further-topics 'archive=.*[.]pageviews' --json > status.json
