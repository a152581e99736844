#!/bin/bash
# A probe over a link of netem, from 100 to 200 ms after 3.75 s; the samples go to standard output.
set -euo pipefail
ip netns add far
ip link add near type veth peer name far netns far
ip addr add 10.3.0.1/24 dev near
ip link set near up
ip -n far addr add 10.3.0.2/24 dev far
ip -n far link set far up
# At the far end: the kernel stamps what leaves behind the queueing discipline.
ip netns exec far tc qdisc add dev far root netem delay 100ms
ip netns exec far segue probe --listen >/dev/null 2>&1 &
sleep 3
segue probe 10.3.0.2 -i 200ms -w 9s --tau 124ms,218ms,392ms,896ms --json &
probe=$!
sleep 3.75
ip netns exec far tc qdisc change dev far root netem delay 200ms
wait $probe
