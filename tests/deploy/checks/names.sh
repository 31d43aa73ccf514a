# shellcheck shell=bash disable=SC2154
# Every name reaches pods, and the headless one reaches all.

check "castor through the ClusterIP's name" on_node "$root/build/client/castor" health readiness \
  --server "dns:///castor.$fqdn:50051"
addresses=$(on_node getent ahostsv4 "castor-headless.$fqdn" | awk '{ print $1 }' | sort -u | wc -l)
same "addresses of the headless name" 2 "$addresses"
load names 5
lossless "castor-load from a pod, by the headless name" names
calls=$(for ip in $(on_node getent ahostsv4 "castor-headless.$fqdn" | awk '{ print $1 }' | sort -u); do
  on_node curl -s "http://$ip:9464/metrics" | awk '/^castor_requests_total.*code="OK".*kernel="vanilla",method="attend"/ { print $2 }'
done)
if [ "$(awk '$1 > 100' <<<"$calls" | wc -l)" = 2 ]; then pass "both pods were called: $(xargs <<<"$calls")"; else fail "calls by pod: $(xargs <<<"$calls")"; fi
