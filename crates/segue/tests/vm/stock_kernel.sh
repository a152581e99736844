#!/bin/bash
# What a distribution's kernel has and that of a test machine may lack: netem, WireGuard and tunnels in IPv6, each with
# a ping through it.
set -euo pipefail
command -v ip >/dev/null || { echo "skipped: needs iproute2"; exit 0; }
command -v ping >/dev/null || { echo "skipped: needs iputils-ping"; exit 0; }

for node in left right; do
  ip netns add $node
  ip -n $node link set lo up
  ip netns exec $node sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
done
ip link add left netns left type veth peer name right netns right
ip -n left addr add fd00::1/64 dev left nodad
ip -n right addr add fd00::2/64 dev right nodad
ip -n left link set left up
ip -n right link set right up

# Pings the other end and prints the least time in ms: the processor is emulated.
least() {
  ip netns exec left ping -c 5 -i 0.2 -W 5 "$1" | awk -F'[/ ]' '/^rtt/ { print $7 }'
}

before=$(least fd00::2)
ip netns exec left tc qdisc add dev left root netem delay 200ms
after=$(least fd00::2)
echo "netem: $before ms before, $after ms with 200 ms"
awk -v before="$before" -v after="$after" 'BEGIN { exit !(before < 100 && after >= 200) }'
ip netns exec left tc qdisc del dev left root

for tunnel in ip6tnl ip6gre; do
  ip -n left link add name tunnel type $tunnel local fd00::1 remote fd00::2
  ip -n right link add name tunnel type $tunnel local fd00::2 remote fd00::1
  ip -n left addr add 10.1.0.1/24 dev tunnel
  ip -n right addr add 10.1.0.2/24 dev tunnel
  ip -n left link set tunnel up
  ip -n right link set tunnel up
  echo "$tunnel: $(least 10.1.0.2) ms"
  [ "$(ip netns exec right cat /sys/class/net/tunnel/statistics/rx_packets)" -ge 5 ]
  ip -n left link del tunnel
  ip -n right link del tunnel
done

command -v wg >/dev/null || { echo "skipped: WireGuard, which needs wireguard-tools"; exit 0; }
umask 077
for node in left right; do
  wg genkey >/run/$node.key
  wg pubkey </run/$node.key >/run/$node.pub
done
number=0
for pair in left:right right:left; do
  node=${pair%:*} peer=${pair#*:}
  number=$((number + 1))
  ip -n $node link add name wg0 type wireguard
  ip netns exec $node wg set wg0 private-key /run/$node.key listen-port 51820 \
    peer "$(cat /run/$peer.pub)" allowed-ips 10.2.0.0/24 endpoint "[fd00::$((3 - number))]:51820"
  ip -n $node addr add 10.2.0.$number/24 dev wg0
  ip -n $node link set wg0 up
done
echo "wireguard: $(least 10.2.0.2) ms"
[ "$(ip netns exec right wg show wg0 transfer | awk '{ print $2 }')" -gt 500 ]
