# The networks. Each cluster is a switch with one port for the control plane and one for each node; the two
# switches are joined by the line. No namespace has a way out of the machine.
# shellcheck shell=bash

network_up() {
  local c n other
  for c in $CLUSTERS; do
    make_netns "$c-sw"
    ip -n "$LK_PREFIX-$c-sw" link add lan type bridge
    ip -n "$LK_PREFIX-$c-sw" address add "$(lan "$c").1/24" dev lan
    ip -n "$LK_PREFIX-$c-sw" link set lan up
    plug "$c-cp" "$c" "$(lan "$c").2/24"
    for n in $(nodes "$c"); do
      plug "$n" "$c" "$(node_address "$n")/24"
      ip -n "$LK_PREFIX-$c-sw" route add "$(pod_range "$n")" via "$(node_address "$n")"
    done
  done
  for c in $CLUSTERS; do
    other=$([ "$c" = a ] && echo b || echo a)
    # The emulator attaches to these devices; they outlive it, and so do addresses and routes.
    ip -n "$LK_PREFIX-$c-sw" tuntap add dev wan mode tun vnet_hdr
    ip -n "$LK_PREFIX-$c-sw" link set wan txqueuelen 5000 up
    ip -n "$LK_PREFIX-$c-sw" address add "$(line_address "$c")" peer "$(line_address "$other")" dev wan
    ip -n "$LK_PREFIX-$c-sw" route add "$(lan "$other").0/24" via "$(line_address "$other")"
    ip -n "$LK_PREFIX-$c-sw" route add "$(pods "$other").0.0/16" via "$(line_address "$other")"
  done
}

make_netns() {
  ip netns add "$LK_PREFIX-$1"
  ip -n "$LK_PREFIX-$1" link set lo up
  in_netns "$1" sysctl -qw net.ipv4.ip_forward=1
}

plug() { # plug NAMESPACE CLUSTER ADDRESS: a port of the cluster's switch
  local ns=$LK_PREFIX-$1 switch=$LK_PREFIX-$2-sw
  make_netns "$1"
  ip link add eth0 netns "$ns" type veth peer name "p-$1" netns "$switch"
  ip -n "$switch" link set "p-$1" master lan up
  ip -n "$ns" address add "$3" dev eth0
  ip -n "$ns" link set eth0 up
  ip -n "$ns" route add default via "$(lan "$2").1" # also for cluster IPs: they need some route before kube-proxy's DNAT
}

node_port() { # node_port NODE up|down: its switch port, so that a power cut looks like silence from outside
  ip -n "$LK_PREFIX-$(cluster_of "$1")-sw" link set "p-$1" "$2"
}

network_exists() {
  local n
  for n in a-sw b-sw a-cp b-cp $(all_nodes); do [ -e "$(netns "$n")" ] || return 1; done
}

our_netns() { ip netns list | awk -v p="$LK_PREFIX-" 'index($1, p) == 1 {print $1}'; }

network_down() {
  local ns p
  for ns in $(our_netns); do
    # What still runs in there (an `lk in a1 ...` left behind) is ours by where it is.
    for p in $(ip netns pids "$ns" 2>/dev/null); do kill -KILL "$p" 2>/dev/null || true; done
    ip netns delete "$ns"
  done
}
