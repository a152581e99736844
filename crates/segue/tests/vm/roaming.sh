#!/bin/bash
# A stock station between two access points of hostapd, each at a gateway of Proxy Mobile IPv6 that a function of IEEE 802.21
# tells of its hosts: its address stays, and what is for it follows. Of the left access point's stations hostapd tells, of the
# right one's and of the station's own attachment the kernel.
set -euo pipefail
for program in hostapd wpa_supplicant wpa_cli iw ping; do
  command -v $program >/dev/null || { echo "skipped: needs $program"; exit 0; }
done
modprobe mac80211_hwsim radios=3 && modprobe tun || { echo "skipped: this kernel has no simulated radios"; exit 0; }
cd /run

for node in cn lma left right host; do
  ip netns add $node
  ip -n $node link set lo up
  ip netns exec $node sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
done
for node in lma left right; do ip netns exec $node sysctl -qw net.ipv6.conf.all.forwarding=1; done
# wire NODE DEVICE ADDRESS NODE DEVICE ADDRESS
wire() {
  ip link add "$2" netns "$1" type veth peer name "$5" netns "$4"
  for end in "$1 $2 $3" "$4 $5 $6"; do
    set -- $end
    ip -n "$1" addr add "$3/64" dev "$2" nodad
    ip -n "$1" link set "$2" up
  done
}
wire cn eth0 fd00:c::2 lma outside fd00:c::1
wire lma to-left fd00:2::1 left eth0 fd00:2::2
wire lma to-right fd00:3::1 right eth0 fd00:3::2
ip -n lma addr add fd00:1::1/128 dev lo
ip -n cn -6 route add default via fd00:c::1
ip -n left -6 route add default via fd00:2::1
ip -n right -6 route add default via fd00:3::1

# IPsec of the kernel protects the signalling between the anchor and the left gateway; what is not protected is dropped there.
if modprobe -q esp6 && modprobe -q xfrm_user; then
  keys="enc cbc(aes) 0x$(printf '5e%.0s' $(seq 16)) auth-trunc hmac(sha256) 0x$(printf 'a7%.0s' $(seq 32)) 128"
  for node in lma left; do
    for way in "fd00:1::1 fd00:2::2 0x100" "fd00:2::2 fd00:1::1 0x101"; do
      set -- $way
      ip -n $node xfrm state add src "$1" dst "$2" proto esp spi "$3" mode transport $keys
      direction=in
      case $node:$1 in lma:fd00:1::1 | left:fd00:2::2) direction=out ;; esac
      ip -n $node xfrm policy add dir $direction src "$1" dst "$2" proto 135 tmpl src "$1" dst "$2" proto esp mode transport
    done
  done
  esp=yes
else
  echo "skipped: ESP, which this kernel has not"
  esp=
fi

number=0
for node in left right host; do
  iw phy phy$number set netns name $node
  number=$((number + 1))
done
# access NODE DEVICE CHANNEL ADDRESS SOURCE
access() {
  local source="source = \"$5\""
  [ "$5" = nl80211 ] || source="$source\nsocket = \"/run/hostapd-$1/$2\""
  printf 'interface=%s\nctrl_interface=/run/hostapd-%s\nssid=segue\nhw_mode=g\nchannel=%s\n' "$2" "$1" "$3" >"$1-ap.conf"
  ip netns exec "$1" hostapd -B "$1-ap.conf" >"$1-ap.log"
  printf 'name = "mihf@%s"\npeers = ["fd00:1::1"]\n' "$1" >"$1-mihf.toml"
  printf "[[link]]\ninterface = \"$2\"\ntechnology = \"wlan\"\norders = true\n$source\n" >"$1-sap.toml"
  printf 'anchor = "fd00:1::1"\nfixed_mac = false\n[mih]\n[[access]]\ninterface = "%s"\ntechnology = "wlan"\nattach = "mih"\nproxy_coa = "%s"\n' \
    "$2" "$4" >"$1-mag.toml"
  ip netns exec "$1" segue mih function -c "$1-mihf.toml" --control "/run/$1-mihf.sock" 2>"$1-mihf.log" &
  ip netns exec "$1" segue mih link-sap -c "$1-sap.toml" --control "/run/$1-sap.sock" 2>"$1-sap.log" &
  ip netns exec "$1" segue pmip mag -c "$1-mag.toml" --datapath auto --state "/run/$1.db" --control "/run/$1-mag.sock" 2>"$1-mag.log" &
}
printf 'address = "fd00:1::1"\npool = "2001:db8::/48"\ngateways = ["fd00:2::2", "fd00:3::2"]\ntimestamp_window = "5s"\n[mih]\nfunctions = ["fd00:2::2", "fd00:3::2"]\n' >lma.toml
ip netns exec lma segue pmip lma -c lma.toml --datapath auto --state /run/lma.db --control /run/lma.sock 2>lma.log &
anchor=$!
access left wlan0 1 fd00:2::2 hostapd
access right wlan1 6 fd00:3::2 nl80211
printf '[[link]]\ninterface = "wlan2"\ntechnology = "wlan"\nsource = "nl80211"\n' >host-sap.toml
ip netns exec host segue mih function --control /run/host-mihf.sock 2>host-mihf.log &
ip netns exec host segue mih link-sap -c host-sap.toml --control /run/host-sap.sock 2>host-sap.log &

# waits WORDS COMMAND…: until the command says them
waits() {
  local words=$1
  shift
  for _ in $(seq 300); do
    "$@" 2>/dev/null | grep -q "$words" && return
    sleep 0.2
  done
  echo "not within a minute: $words in $*"
  "$@" || true
  tail -n 3 ./*.log
  ip netns exec host wpa_cli -p /run/wpa -i wlan2 status || true
  exit 1
}
status() { segue status --control "/run/$1.sock" --json; }
waits '"registered": true' status left-sap
waits '"registered": true' status right-sap
waits '"registered": true' status host-sap
waits 'subscribed' status left-mihf

bssid() { ip netns exec "$1" cat "/sys/class/net/$2/address" 2>/dev/null || ip -n "$1" -o link show "$2" | sed 's/.*ether \([^ ]*\).*/\1/'; }
left=$(bssid left wlan0)
right=$(bssid right wlan1)
printf 'ctrl_interface=/run/wpa\nnetwork={\nssid="segue"\nkey_mgmt=NONE\nscan_freq=2412 2437\nbssid=%s\n}\n' "$left" >wpa.conf
ip netns exec host sysctl -qw net.ipv6.conf.wlan2.accept_ra=1
ip netns exec host wpa_supplicant -B -i wlan2 -c wpa.conf >wpa.log
waits '"proxy_coa": "fd00:2::2"' status lma
address() { ip -n host -o -6 addr show dev wlan2 scope global | awk '{ print $4 }'; }
waits 2001:db8 address
before=$(address)
echo "at $left: $before"
if [ "$esp" ]; then
  # Each way has its own.
  packets=$(ip -n lma -s xfrm state | grep -o '[0-9]*(packets)' | sed 's/(.*//' | xargs)
  echo "messages in ESP at the anchor, by way: $packets"
  for count in $packets; do [ "$count" -ge 1 ]; done
fi
# The SAP has measured the station's signal over hostapd; an operator is told.
waits '"signal_dbm": -' status left-sap
segue mih get "$left" signal --control /run/left-mihf.sock
segue mih get "$left" --control /run/left-mihf.sock >/run/got
grep -q 'signal .* -[0-9]* dBm' /run/got
segue mih get "$left" --control /run/left-mihf.sock --json >/run/got
grep -q data-rate /run/got
# The station's own SAP has heard of both access points, is at the left one, and knows its signal and its rate.
waits '"kind": "link_detected"' status host-sap
waits "\"station\": \"$left\"" status host-sap
segue mih get "$(bssid host wlan2)" --control /run/host-mihf.sock
segue mih get "$(bssid host wlan2)" --control /run/host-mihf.sock --json >/run/got
grep -q signal /run/got
grep -q data-rate /run/got
ip netns exec host ping -q -c 3 -i 0.3 -W 5 fd00:c::2 >/run/ping || { cat /run/ping; exit 1; }
ip netns exec cn ping -q -i 0.2 -W 2 "${before%/*}" >/run/moved &
pinging=$!
sleep 3
moves=$(date +%s%N)
ip netns exec host wpa_cli -p /run/wpa -i wlan2 set_network 0 bssid "$right" >/run/cli
ip netns exec host wpa_cli -p /run/wpa -i wlan2 reassociate >/run/cli
waits '"proxy_coa": "fd00:3::2"' status lma
after=$(address)
echo "at $right: $after"
echo "$((($(date +%s%N) - moves) / 1000000)) ms until it was registered there, on an emulated processor"
[ "$before" = "$after" ]
# Both ways, whoever begins.
ip netns exec host ping -q -c 3 -i 0.3 -W 5 fd00:c::2 >/run/ping || { cat /run/ping; exit 1; }
ip netns exec cn ping -q -c 3 -i 0.3 -W 5 "${before%/*}" >/run/ping || { cat /run/ping; exit 1; }
kill -INT $pinging
wait $pinging || true
grep loss /run/moved
waits "\"station\": \"$right\"" status host-sap
# The kernel's own tunnel in the anchor's place: it is the whole peer of the gateway's packets.
if modprobe -q ip6_tunnel; then
  kill -INT $anchor
  wait $anchor || true
  ip -n lma link add name kernel0 type ip6tnl mode ip6ip6 local fd00:1::1 remote fd00:3::2
  ip -n lma link set kernel0 up
  ip -n lma -6 route add "${before%/*}" dev kernel0
  ip netns exec host ping -q -c 5 -i 0.3 -W 5 fd00:c::2 >/run/ping || { cat /run/ping; exit 1; }
  ip netns exec cn ping -q -c 5 -i 0.3 -W 5 "${before%/*}" >/run/ping || { cat /run/ping; exit 1; }
  carried=$(ip -n lma -s link show kernel0 | awk '/RX:|TX:/ { getline; print $2 }' | xargs)
  echo "packets through the kernel's tunnel, from and to the gateway: $carried"
  for count in $carried; do [ "$count" -ge 10 ]; done
else
  echo "skipped: the kernel's tunnel, which this kernel has not"
fi
# Sent away by the access point, which then goes down, as an operator orders: it is missed at once.
station=$(bssid host wlan2)
segue mih get "$right" signal --control /run/right-mihf.sock
segue mih act "$right" disconnect --station "$station" --control /run/right-mihf.sock
waits '"kind": "link_down"' status right-sap
segue mih act "$right" power-down --control /run/right-mihf.sock
waits '"stations": \[\]' status right-sap
waits '"stations": \[\]' status host-sap
echo "roamed"
