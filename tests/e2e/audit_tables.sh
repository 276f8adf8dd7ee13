# The commands of docs/querying.md about what the audit settled, run by test_e2e_load_iceberg.py.
set -e
headrace query --warehouse $WAREHOUSE "SELECT datacenter, topic, sum(live) AS live, sum(warehouse) AS rows, sum(lost) AS lost FROM warehouse.audit_windows WHERE window_start >= now() - INTERVAL 7 DAYS GROUP BY ALL"
headrace query --warehouse $WAREHOUSE "SELECT kind, hop, datacenter, topic, server, service, count, window_start FROM warehouse.audit_findings ORDER BY window_start DESC LIMIT 20"
