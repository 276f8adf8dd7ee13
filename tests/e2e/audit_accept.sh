# The commands of docs/events-and-audit.md about findings that are accepted, run by test_e2e_audit_faults.py.
set -e
headrace audit accept $FINDING --reason 'the disk of broker 2 is lost' --by ada --bootstrap $OFFLINE --warehouse $WAREHOUSE
! headrace audit report --bootstrap $OFFLINE --warehouse $WAREHOUSE --output accepted
headrace audit reopen $FINDING --reason 'it goes on' --by ada --bootstrap $OFFLINE --warehouse $WAREHOUSE
