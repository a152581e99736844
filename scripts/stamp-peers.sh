#!/usr/bin/env bash
# Measures with foreign STAMP and TWAMP Light implementations, both ways, over the loopback device, lets
# tshark dissect every packet, and prints a table. Peers: stamp-suite (a Rust program, installed into a
# scratch folder unless STAMP_SUITE names it) and twampy (github.com/nokia/twampy; TWAMPY names the
# folder with its module, else it is left out).
# usage: scripts/stamp-peers.sh [SEGUE]     (the program, target/debug/segue unless given)
set -euo pipefail
cd "$(dirname "$0")/.."
segue=$(realpath "${1:-target/debug/segue}")
work=$(mktemp -d -t segue-stamp-XXXXXX)
count=20 port=18900 started=() failed=0
cleanup() { for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$work"; }
trap cleanup EXIT

for program in tshark tcpdump jq ss; do
  command -v "$program" >/dev/null || { echo "$program is missing: install it first." >&2; exit 2; }
done
[ -x "$segue" ] || { echo "$segue is missing: cargo build -p segue" >&2; exit 2; }
suite=${STAMP_SUITE:-}
if [ -z "$suite" ]; then
  cargo install --quiet --locked --root "$work/suite" stamp-suite --version 1.0.0
  suite=$work/suite/bin/stamp-suite
fi
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
echo $key >"$work/key"; chmod 600 "$work/key"

# begin COMMAND…: starts a listener for $port in the background and waits until it listens; its number is in $!, its
# output in $work/peer
begin() {
  "$@" >"$work/peer" 2>&1 & started+=($!)
  wait_for 'test -n "$(ss -Hlun "sport = :$port")"'
}
# wait_for TEST: up to twenty seconds
wait_for() { for _ in {1..100}; do if eval "$1"; then return; fi; sleep 0.2; done; echo "not within 20 s: $1" >&2; }
# end PID: ends what begin started, like Ctrl-C
end() { kill -INT "$1" 2>/dev/null || true; sleep 0.5; kill "$1" 2>/dev/null || true; wait "$1" 2>/dev/null || true; }

# dissected DECODER: packets in the capture, and how many of them tshark accepts as measurement packets
dissected() {
  local all good
  all=$(tshark -r "$work/capture" 2>/dev/null | wc -l)
  good=$(tshark -r "$work/capture" -o udp.check_checksum:TRUE -d "udp.port==$port,twamp.test" \
    -Y 'twamp.test.seq_number && !_ws.malformed' 2>/dev/null | wc -l)
  echo "$good/$all"
}

# row NAME ANSWERED: one line of the table
row() {
  sleep 1 # for what is still on its way into the capture
  kill "$capture"; wait "$capture" 2>/dev/null || true
  printf '| %-58s | %2s/%s | %7s |\n' "$1" "$2" "$count" "$(dissected)"
  [ "$2" = "$count" ] || failed=1
}
capture() {
  port=$((port + 1))
  tcpdump -i lo -U -w "$work/capture" udp port $port 2>"$work/tcpdump" & capture=$!
  started+=("$capture"); wait_for 'grep -q "listening on" "$work/tcpdump"'
}

# ours NAME OPTIONS… -- REFLECTOR…: our sender towards a foreign reflector on $port
ours() {
  local name=$1 options=(); shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done; shift
  begin "$@"; local peer=$!
  "$segue" probe --stamp "127.0.0.1:$port" -c $count -i 50ms --json "${options[@]}" >"$work/ours" || true
  end "$peer"
  row "$name" "$(jq -s '[.[]|select(.type=="summary")][0].targets[0].received' "$work/ours")"
}

# theirs NAME PATTERN OPTIONS… -- SENDER…: a foreign sender towards our reflector on $port; PATTERN finds the number
# of answers in its output; without one, our reflector's sent packets are counted
theirs() {
  local name=$1 pattern=$2 options=(); shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done; shift
  begin "$segue" probe --stamp --listen "127.0.0.1:$port" --json "${options[@]}"; local reflector=$!
  timeout 60 "$@" >"$work/theirs" 2>&1 || true
  end "$reflector"
  if [ -n "$pattern" ]; then
    row "$name" "$(grep -oP "$pattern" "$work/theirs" | head -1)"
  else
    row "$name" "$(jq -s '[.[]|select(.type=="summary")][0].sessions|map(.sent)|add' "$work/peer")"
  fi
}

echo "| sender → reflector | answered | dissected |"
echo "| --- | --- | --- |"
got='Packets received: \K\d+'
all=(--direct-measurement --follow-up-telemetry --cos --dscp 10 --timestamp-info --ssid 5)
capture; ours 'segue → stamp-suite' -- "$suite" -i -S 127.0.0.1 -o $port
capture; ours 'segue → stamp-suite, SSID, all extensions' --session-id 7 --direct --follow-up --reply-dscp 10 -- \
  "$suite" -i -S 127.0.0.1 -o $port --stateful-reflector
capture; ours 'segue → stamp-suite, HMAC' --key "$work/key" -- \
  "$suite" -i -S 127.0.0.1 -o $port -A A --hmac-key $key
capture; ours 'segue → stamp-suite, HMAC, all extensions' --key "$work/key" --direct --follow-up --reply-dscp 10 -- \
  "$suite" -i -S 127.0.0.1 -o $port -A A --hmac-key $key --stateful-reflector
capture; theirs 'stamp-suite → segue' "$got" -- "$suite" -r 127.0.0.1 -p $port -c $count -d 50
capture; theirs 'stamp-suite → segue, PTP timestamps' "$got" -- \
  "$suite" -r 127.0.0.1 -p $port -c $count -d 50 -K PTP
capture; theirs 'stamp-suite → segue, SSID, all extensions' "$got" -- \
  "$suite" -r 127.0.0.1 -p $port -c $count -d 50 "${all[@]}"
capture; theirs 'stamp-suite → segue, HMAC' "$got" --key "$work/key" -- \
  "$suite" -r 127.0.0.1 -p $port -c $count -d 50 -A A --hmac-key $key
capture; theirs 'stamp-suite → segue, HMAC, all extensions' "$got" --key "$work/key" -- \
  "$suite" -r 127.0.0.1 -p $port -c $count -d 50 -A A --hmac-key $key "${all[@]}"
if [ -n "${TWAMPY:-}" ]; then
  export PYTHONPATH=$TWAMPY
  capture; ours 'segue → twampy (TWAMP Light)' -- python3 -m twampy responder --padding 6 "127.0.0.1:$port"
  capture; theirs 'twampy (TWAMP Light) → segue' '' -- \
    python3 -m twampy sender -i 100 -c $count --padding 27 "127.0.0.1:$port" "127.0.0.1:$((port + 1000))"
fi
exit $failed
