# shellcheck shell=bash disable=SC2154
# kill -9 of one of two servers costs the calls in flight there, and callers that retry none.

check "two pods to begin with" until_ready 2 90
load_rate=200 load killed 30
stock killed_stock 30 --retry
killed_stock=$stock_pid
sleep 8
on_node kill -9 "$(on_node pgrep -o castor-server)"
planned=$(outcome killed planned) ok=$(outcome killed ok)
# At 200 a second and some 2 ms each, one of two servers holds few.
at_most "calls that castor-load lost, which does not retry, of $planned" 20 "$((planned - ok))"
stock_lossless "Python's gRPC with the recommended retries" killed_stock "$killed_stock"
check "the container is back" until_ready 2 90
