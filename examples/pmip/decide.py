#!/usr/bin/env python3
"""Places the flows of an anchor's hosts: calls over Wi-Fi, everything else over the other access.

    decide.py /run/segue/decisions.sock

docs/decision.md describes the lines. For a host with one interface the anchor does not ask about new flows; it asks when
another interface appears.
"""
import json
import socket
import sys

CALLS = {46, 44, 40}  # EF, VOICE-ADMIT, CS5


def choose(bindings, flow):
    """The number of the interface for a flow; None leaves it to the anchor."""
    staying = [b for b in bindings.values() if not b.get("leaves")]
    wifi = [b["bid"] for b in staying if "802.11" in b["att"]]
    other = [b["bid"] for b in staying if "802.11" not in b["att"]]
    wanted = wifi if flow["dscp"] in CALLS else other
    return wanted[0] if wanted else None


def main(path):
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    lines = link.makefile("rw", encoding="utf-8")

    def say(order):
        lines.write(json.dumps(order) + "\n")
        lines.flush()

    say({"order": "decide"})
    hosts = {}  # identity: interface: binding
    for line in lines:
        told = json.loads(line)
        what = told["event"]
        if what == "binding":
            hosts.setdefault(told["mn_id"], {})[told["llid"]] = told
        elif what == "left":
            hosts.get(told["mn_id"], {}).pop(told["llid"], None)
        elif what in ("going_down", "stays"):
            binding = hosts.get(told["mn_id"], {}).get(told["llid"], {})
            binding["leaves"] = what == "going_down"
        elif what == "flow":
            name = {"flow": told["flow"]}
            if told["asked"]:
                bid = choose(hosts.get(told["mn_id"], {}), told)
                say({"order": "default", **name} if bid is None else {"order": "place", "bid": bid, **name})
                print(told["mn_id"], told["flow"]["dst"], "over", bid, flush=True)
            elif told["why"] == "moved":
                # The order holds: the flow returns with its interface.
                print(told["mn_id"], told["flow"]["dst"], "meanwhile over", told["bid"], flush=True)
            elif told["why"] == "decision":
                print(told["mn_id"], told["flow"]["dst"], "goes over", told["bid"], flush=True)
        elif what == "refused":
            print(told["why"], file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: decide.py SOCKET")
    try:
        main(sys.argv[1])
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(f"decide.py: {error}")
