# The commands of docs/load.md, run by test_e2e_load_positions.py: `load_page.sh resume` or `load_page.sh skip`.
set -e
case $1 in
resume)
    headrace load resume dc-kept.pageviews --bootstrap $OFFLINE --warehouse $WAREHOUSE
    headrace load resume dc-kept.pageviews 0 --from 100 --at 150 --bootstrap $OFFLINE --warehouse $WAREHOUSE
    ;;
skip)
    headrace load skip dc-rot.pageviews 0 --from $FROM --at $AT --bootstrap $OFFLINE --warehouse $WAREHOUSE
    ;;
esac
