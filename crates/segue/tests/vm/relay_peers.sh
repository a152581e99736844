#!/bin/bash
# The stock kernel's own tunnels and Mobile IPv6 at one end, the relay at the other.
# relay_peers.sh RELAY_END
set -u
relay=$1
failed=0
for module in ip6_tunnel ip6_gre ip_gre ipip mip6 veth tun cls_bpf sch_ingress xfrm_user; do modprobe -q $module; done
A="ip netns exec segue-vma"; B="ip netns exec segue-vmb"

begin() {
	for n in segue-vma segue-vmb; do ip netns add $n; done
	ip link add sg0 netns segue-vma type veth peer name sg0 netns segue-vmb
	for n in 1 2; do
		N=$A; [ $n = 2 ] && N=$B
		$N sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
		$N ip link set lo up
		$N ip addr add fd00::$n/64 dev sg0 nodad; $N ip addr add 10.9.0.$n/24 dev sg0
		$N ip link set sg0 up
	done
}

end() {
	exec 9>&-
	wait $relay_pid
	cat /run/relay.log
	ip netns del segue-vma; ip netns del segue-vmb
}

# start FORM LOCAL REMOTE OWN FAR; by programs, or in user space with user=--user
user=
start() {
	mkfifo /run/stop 2>/dev/null
	$B "$relay" $user $1 sg0 $2 $3 $4 $5 </run/stop >/run/relay.log 2>&1 &
	relay_pid=$!
	exec 9>/run/stop
	for _ in $(seq 100); do grep -q ready /run/relay.log && return; sleep 0.2; done
	echo "the relay did not start:"; cat /run/relay.log; failed=1
}

# judge NAME FROM TO: pings, and TCP both ways with every byte compared
judge() {
	if $A ping -q -c 3 -i 0.3 -W 5 -I $2 $3 >/run/ping && tcp $2 $3; then echo "$1: ok"; else
		echo "$1: FAILED"; cat /run/ping; failed=1
	fi
}

tcp() {
	$B timeout 60 python3 -c '
import socket, sys
s = socket.create_server((sys.argv[1], 7000), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
c, _ = s.accept()
got = b""
while len(got) < 1 << 20: got += c.recv(1 << 16)
c.sendall(got)
' $2 &
	sleep 2
	$A timeout 60 python3 -c '
import os, socket, sys, threading
sent = os.urandom(1 << 20)
c = socket.create_connection((sys.argv[2], 7000), 20, (sys.argv[1], 0))
threading.Thread(target=c.sendall, args=(sent,)).start()
got = b""
while len(got) < len(sent): got += c.recv(1 << 16)
sys.exit(got != sent)
' $1 $2
}

# tunnel NAME FORM KIND REMOTE LOCAL OPTIONS: the kernel's tunnel of KIND
tunnel() {
	begin
	start $2 $4 $5 fd08::2 fd08::1
	$A ip link add sgt type $3 remote $4 local $5 $6 && $A ip link set sgt mtu 1400 up
	$A ip addr add fd08::1/64 dev sgt nodad
	judge "$1" fd08::1 fd08::2
	end
}

for user in "" --user; do
	tunnel "ip6tnl $user" ip ip6tnl fd00::2 fd00::1 "mode ip6ip6 encaplimit none"
	tunnel "ip6tnl with its encapsulation limit $user" ip ip6tnl fd00::2 fd00::1 "mode ip6ip6"
	tunnel "ip6gre $user" gre ip6gre fd00::2 fd00::1 "encaplimit none"
	tunnel "ip6gre with a key $user" gre:77 ip6gre fd00::2 fd00::1 "key 77 encaplimit none"
done
user=

# The kernel as mobile node, the relay as correspondent.
begin
start peer fd00::2 fd00::1 fd00::2 fd08::1
$A ip addr add fd08::1/128 dev lo home nodad
H=fd08::1; C=fd00::2; COA=fd00::1
$A ip xfrm state add src $H dst $C proto hao coa $COA mode ro
$A ip xfrm state add src $C dst $H proto route2 coa $COA mode ro
$A ip xfrm policy add src $H dst $C dir out tmpl src $H dst $C proto hao mode ro
$A ip xfrm policy add src $C dst $H dir in tmpl src $C dst $H proto route2 mode ro level use
judge "the kernel's Mobile IPv6 as mobile node" $H $C
end

# The kernel as correspondent, the relay as mobile node.
begin
start home fd00::2 fd00::1 fd08::2 fd00::1
H=fd08::2; C=fd00::1; COA=fd00::2
$A ip xfrm state add src $C dst $H proto route2 coa $COA mode ro
$A ip xfrm state add src $H dst $C proto hao coa $COA mode ro
$A ip xfrm policy add src $C dst $H dir out tmpl src $C dst $H proto route2 mode ro
$A ip xfrm policy add src $H dst $C dir in tmpl src $H dst $C proto hao mode ro level use
$A ip -6 route add $H/128 via $COA
judge "the kernel's Mobile IPv6 as correspondent" $C $H
end
exit $failed
