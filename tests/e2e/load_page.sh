# The commands of docs/load.md, run by test_e2e_load_positions.py (`load_page.sh resume` or `load_page.sh skip`) and by
# test_e2e_load_redrive.py, which sets WORD.
set -e
case ${1:-$WORD} in
resume)
    headrace load resume dc-kept.pageviews --bootstrap $OFFLINE --warehouse $WAREHOUSE
    headrace load resume dc-kept.pageviews 0 --from 100 --at 150 --bootstrap $OFFLINE --warehouse $WAREHOUSE
    ;;
skip)
    headrace load skip dc-rot.pageviews 0 --from $FROM --at $AT --bootstrap $OFFLINE --warehouse $WAREHOUSE
    ;;
redrive)
    headrace load redrive pageviews --datacenter dc-east --dry-run --registry $REGISTRY --warehouse $WAREHOUSE
    headrace load redrive pageviews --datacenter dc-east --json --registry $REGISTRY --warehouse $WAREHOUSE
    ;;
esac
