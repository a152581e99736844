#!/bin/bash
# Segue itself in the virtual machine: its doctor finds the kernel good, and its probe measures a link of netem.
set -euo pipefail
modprobe tun
segue doctor --json >/run/doctor.json || [ $? -eq 1 ]
cat /run/doctor.json
python3 - <<'PYTHON'
import json
verdicts = {finding["check"]: finding["verdict"] for finding in json.load(open("/run/doctor.json"))}
assert verdicts["kernel"] == verdicts["datapath"] == verdicts["capabilities"] == "ok", verdicts
PYTHON
ip netns add far
ip link add near type veth peer name far netns far
ip addr add 10.3.0.1/24 dev near
ip link set near up
ip -n far addr add 10.3.0.2/24 dev far
ip -n far link set far up
# At the far end: the kernel stamps what leaves behind the queueing discipline.
ip netns exec far tc qdisc add dev far root netem delay 100ms
ip netns exec far segue probe --listen &
sleep 3
segue probe 10.3.0.2 -c 10 -i 300ms --json >/run/probe.json
python3 - <<'PYTHON'
import json
summary = [json.loads(line) for line in open("/run/probe.json")][-1]["targets"][0]
print(summary)
assert summary["received"] >= 5 and 100 <= summary["rtt_ms"]["min"] < 200, summary["rtt_ms"]
PYTHON
