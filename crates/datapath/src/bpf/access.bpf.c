/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Makes the programs of a control group send over one access interface, bypassing the tunnel. Their sockets get the
 * mark of packets that daemons send outside the tunnel, and are bound to the interface when they connect or send.
 * Loopback destinations are exempt: the DNS resolver may be there. */
#include <stddef.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SOL_SOCKET 1
#define SO_BINDTOIFINDEX 62
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_ICMP 1
#define IPPROTO_ICMPV6 58

/* Set before loading. */
const volatile __u32 access_ifindex = 0;
const volatile __u32 access_mark = 0;

/* Sockets that neither connect nor are UDP, such as ping's: creation is the only chance to bind them. */
SEC("cgroup/sock_create")
int access_create(struct bpf_sock *sock)
{
	sock->mark = access_mark;
	if ((sock->type != SOCK_STREAM && sock->type != SOCK_DGRAM) ||
	    sock->protocol == IPPROTO_ICMP || sock->protocol == IPPROTO_ICMPV6)
		sock->bound_dev_if = access_ifindex;
	return 1;
}

/* 1 to let the operation proceed, 0 to refuse it: the packets must not leave over another interface. */
static __always_inline int leave(struct bpf_sock_addr *to, int here)
{
	__u32 ifindex = access_ifindex;

	return here || !bpf_setsockopt(to, SOL_SOCKET, SO_BINDTOIFINDEX, &ifindex, sizeof(ifindex));
}

static __always_inline int is_here_v4(__be32 address)
{
	return bpf_ntohl(address) >> 24 == 127;
}

static __always_inline int is_here_v6(const struct bpf_sock_addr *to)
{
	if (to->user_ip6[0] || to->user_ip6[1])
		return 0;
	if (!to->user_ip6[2])
		return to->user_ip6[3] == bpf_htonl(1);
	return to->user_ip6[2] == bpf_htonl(0xffff) && is_here_v4(to->user_ip6[3]);
}

SEC("cgroup/connect4")
int access_connect4(struct bpf_sock_addr *to)
{
	return leave(to, is_here_v4(to->user_ip4));
}

SEC("cgroup/connect6")
int access_connect6(struct bpf_sock_addr *to)
{
	return leave(to, is_here_v6(to));
}

SEC("cgroup/sendmsg4")
int access_sendmsg4(struct bpf_sock_addr *to)
{
	return leave(to, is_here_v4(to->user_ip4));
}

SEC("cgroup/sendmsg6")
int access_sendmsg6(struct bpf_sock_addr *to)
{
	return leave(to, is_here_v6(to));
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
