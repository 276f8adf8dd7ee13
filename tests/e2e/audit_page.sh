# The commands of docs/events-and-audit.md, run by test_e2e_audit_faults.py.
set -e
headrace audit count --once --bootstrap $LIVE --datacenter dc-east --tier live --topics 'pageviews.*'
headrace audit count --once --bootstrap $OFFLINE --datacenter offline --tier offline --topics dc-east.pageviews,dc-east.pageviews.rejected
headrace audit count --once --bootstrap $LIVE --datacenter dc-east --tier live --modes 'clicks=headers,pageviews.debug=off'
headrace audit count --once --bootstrap $OFFLINE --datacenter offline --tier offline --modes 'clicks=headers,pageviews.debug=off'
headrace audit report --bootstrap $OFFLINE --warehouse $WAREHOUSE --output report
headrace audit report --bootstrap $OFFLINE --warehouse $WAREHOUSE --output report-of-hours --since 3h --until 0s
headrace audit report --bootstrap $OFFLINE --warehouse $WAREHOUSE --output report-of-one --topic pageviews --producer web-1
headrace audit status --since 3h --latency-factor 3 --bootstrap $OFFLINE --warehouse $WAREHOUSE
headrace audit serve --bootstrap $OFFLINE --warehouse $WAREHOUSE --listen 127.0.0.1:8090 &
curl --silent --fail --retry 30 --retry-delay 1 --retry-connrefused --output report-of-now.json http://127.0.0.1:8090/report.json
kill $!
