#!/bin/bash
# The link between two clusters, both directions alike:
#   link.sh shape A B RATE DELAY [LOSS]   RATE as tc has it (50mbit), DELAY one way (20ms), LOSS in per cent (0.1); replaces what was there
#   link.sh clear A B                     as fast as the machine again
#   link.sh cut A B | link.sh mend A B    the link is down | up
#   link.sh route-pods A B                a Pod's address is reachable from the other cluster's Pods, as in a flat network
#   link.sh show A B
# The rate is kept by tbf where packets leave, the delay by netem; on a kernel without netem by build/e2e/delay_packets where they arrive.
set -euo pipefail
# shellcheck source=names_lib.sh
. "$(dirname "$0")/names_lib.sh"
# shellcheck source=network_lib.sh
. "$(dirname "$0")/network_lib.sh"
usage() { die "usage: link.sh shape A B RATE DELAY [LOSS] | clear|cut|mend|route-pods|show A B"; }
[ $# -ge 3 ] || usage
action=$1 a=$2 b=$3
check_root
check_exists "$a"
check_exists "$b"
[ "$a" != "$b" ] || die "a link has two ends"

microseconds() {
  case $1 in
    *us) awk -v value="${1%us}" 'BEGIN { printf "%d", value }' ;;
    *ms) awk -v value="${1%ms}" 'BEGIN { printf "%d", value * 1000 }' ;;
    *s) awk -v value="${1%s}" 'BEGIN { printf "%d", value * 1000000 }' ;;
    *) die "'$1' is no delay: 20ms, 500us or 1s" ;;
  esac
}

# One queue number for each peer; a network namespace has its own.
delay_rule() { echo PREROUTING -t mangle -i "to-$2" -j NFQUEUE --queue-num "$(index_of "$2")" --queue-bypass; }

# clear_end HERE THERE
clear_end() {
  local pid_file=$state_root/$1/links/$2.pid pid
  tc -n "$(prefixed "$1")" qdisc del dev "to-$2" root 2>/dev/null || true
  if pid=$(cat "$pid_file" 2>/dev/null); then
    # shellcheck disable=SC2046
    inside "$1" iptables -D $(delay_rule "$1" "$2") 2>/dev/null || true
    if grep -qz delay_packets "/proc/$pid/cmdline" 2>/dev/null; then kill "$pid"; fi
    rm -f "$pid_file"
  fi
}

# shape_end HERE THERE RATE DELAY_US LOSS_PERCENT: what leaves HERE for THERE is limited, what arrives HERE is late.
shape_end() {
  local space log
  space=$(prefixed "$1") log=$state_root/$1/links/$2.log
  # A burst must hold the largest packet, 64 KB as the kernel hands them on, or nothing passes.
  if tc -n "$space" qdisc add dev "to-$2" root handle 1: netem delay "$4us" loss "$5%" limit 100000 2>/dev/null; then
    tc -n "$space" qdisc add dev "to-$2" parent 1: handle 2: tbf rate "$3" burst 128kb latency 400ms
    return
  fi
  tc -n "$space" qdisc add dev "to-$2" root tbf rate "$3" burst 128kb latency 400ms
  [ -x "$build_folder/e2e/delay_packets" ] || die "this kernel has no netem, and $build_folder/e2e/delay_packets is not built: cmake --build build --target e2e_programs"
  enter "$1" setsid "$build_folder/e2e/delay_packets" "$(index_of "$2")" "$4" "$(awk -v percent="$5" 'BEGIN { printf "%d", percent * 10000 }')" \
    </dev/null >"$log" 2>&1 &
  echo $! >"$state_root/$1/links/$2.pid"
  for _ in $(seq 300); do
    if grep -qs ready "$log"; then break; fi
    kill -0 $! 2>/dev/null || die "delay_packets ended: $(cat "$log")"
    sleep 0.1
  done
  # shellcheck disable=SC2046
  inside "$1" iptables -A $(delay_rule "$1" "$2")
}

both() {
  "$1" "$a" "$b" "${@:2}"
  "$1" "$b" "$a" "${@:2}"
}
set_state() { ip -n "$(prefixed "$1")" link set "to-$2" "$3"; }
# A link that was down has lost its routes.
restore_routes() {
  ip -n "$(prefixed "$1")" route replace "$(node_address "$2")/32" dev "to-$2" src "$(node_address "$1")"
  if [ -e "$state_root/$1/links/$2.pods" ]; then ip -n "$(prefixed "$1")" route replace "$(pod_network "$2")" via "$(node_address "$2")" dev "to-$2" onlink; fi
}
route_pods() {
  touch "$state_root/$1/links/$2.pods"
  restore_routes "$1" "$2"
}
show_end() {
  echo "$1 to $2:"
  ip -n "$(prefixed "$1")" -brief link show dev "to-$2"
  tc -n "$(prefixed "$1")" -s qdisc show dev "to-$2"
  if [ -e "$state_root/$1/links/$2.pid" ]; then tr '\0' ' ' <"/proc/$(cat "$state_root/$1/links/$2.pid")/cmdline"; echo; fi
}

case $action in
  shape)
    [ $# -eq 5 ] || [ $# -eq 6 ] || usage
    delay_us=$(microseconds "$5")
    both clear_end
    both shape_end "$4" "$delay_us" "${6:-0}"
    ;;
  clear) both clear_end ;;
  cut) set_state "$a" "$b" down ;;
  mend)
    set_state "$a" "$b" up
    both restore_routes
    ;;
  route-pods) both route_pods ;;
  show) both show_end ;;
  *) usage ;;
esac
