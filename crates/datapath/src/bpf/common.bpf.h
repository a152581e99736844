/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Maps, load-time settings and what every hook uses. */
#ifndef SEGUE_COMMON_H
#define SEGUE_COMMON_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "segue.bpf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "written for little-endian machines");

#define PASS TC_ACT_UNSPEC /* also lets programs attached after this one see the packet */
#define FAMILY_INET 2
#define FAMILY_INET6 10
#define FRAGMENT_MASK 0x3fff
#define TTL 64
#define HEARTBEAT_TIMEOUT_NS 3000000000ULL
#define PROTO_TCP 6
#define ECN_MASK 3
#define ECN_CE 3
#define ALIGNED __attribute__((aligned(8)))

const volatile __u16 port = 0;       /* network order */
const volatile __u8 is_anchor = 0;
const volatile __u32 mark = 0;
const volatile __u32 tun_ifindex = 0;
const volatile __u32 meta_magic = 0; /* random, so that metadata of other programs are not ours */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_config);
} segue_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_state);
} segue_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct flow_value);
} segue_flows SEC(".maps");

struct inner_key {
	__u32 address[4];
};

/* The machine's own addresses: what goes elsewhere is not ours, whatever its port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct inner_key);
	__type(value, __u32);
} segue_locals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct inner_key);
	__type(value, struct inner_owner);
} segue_inner SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DROP_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} segue_drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} segue_alive SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} segue_events SEC(".maps");

/* So that the Rust types of what is in no map are generated too. */
const volatile struct probe_order type_of_order = {};
const volatile struct probe_event type_of_event = {};

static __always_inline void count(enum drop_reason reason)
{
	__u32 key = reason;
	__u64 *value = bpf_map_lookup_elem(&segue_drops, &key);

	if (value)
		*value += 1; /* per CPU, and TC programs do not nest on one */
}

static __always_inline int drop(enum drop_reason reason)
{
	count(reason);
	return TC_ACT_SHOT;
}

/* The daemon has not said for some seconds that it lives: act as if not there. */
static __always_inline int daemon_is_gone(__u64 now_ns)
{
	__u32 zero = 0;
	__u64 *alive = bpf_map_lookup_elem(&segue_alive, &zero);

	return !alive || (__s64)(now_ns - *alive) > (__s64)HEARTBEAT_TIMEOUT_NS;
}

static __always_inline struct path_config *path_of(__u32 slot)
{
	struct path_config *path = bpf_map_lookup_elem(&segue_paths, &slot);

	return path && path->flags & PATH_USED ? path : 0;
}

static __always_inline struct path_state *state_of(__u32 slot)
{
	return bpf_map_lookup_elem(&segue_state, &slot);
}

/* What was learned goes before what was configured: only an anchor learns. */
static __always_inline struct endpoint *endpoint_of(struct path_config *path,
						    struct path_state *state)
{
	struct endpoint *learned = &state->learned[state->current & 1];

	return learned->family ? learned : &path->endpoint;
}

static __always_inline void map_v4(__u32 to[4], __u32 address)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = bpf_htonl(0xffff);
	to[3] = address;
}

static __always_inline void copy_address(__u32 to[4], const __u32 from[4])
{
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
}

static __always_inline int is_local(const __u32 address[4])
{
	struct inner_key key;

	copy_address(key.address, address);
	return bpf_map_lookup_elem(&segue_locals, &key) != 0;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

static __always_inline __u16 ipv4_checksum(const struct iphdr *ip)
{
	const __u16 *word = (const void *)ip;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += word[i];
	return ~fold(sum);
}

/* Writes the headers in front of the tunnel header. `payload` is the UDP payload's length. */
static __always_inline void fill_v4(struct iphdr *ip, struct udphdr *udp,
				    const struct endpoint *to, __u8 tos, __u32 payload)
{
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = tos;
	ip->tot_len = bpf_htons(payload + sizeof(*ip) + sizeof(*udp));
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = TTL;
	ip->protocol = IPPROTO_UDP;
	ip->saddr = to->local[3];
	ip->daddr = to->remote[3];
	ip->check = ipv4_checksum(ip);
	udp->source = port;
	udp->dest = to->remote_port;
	udp->len = bpf_htons(payload + sizeof(*udp));
}

static __always_inline void fill_v6(struct ipv6hdr *ip, struct udphdr *udp,
				    const struct endpoint *to, __u8 tos, __u32 payload)
{
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)tos << 20);
	ip->payload_len = bpf_htons(payload + sizeof(*udp));
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = TTL;
	copy_address(ip->saddr.s6_addr32, to->local);
	copy_address(ip->daddr.s6_addr32, to->remote);
	udp->source = port;
	udp->dest = to->remote_port;
	udp->len = bpf_htons(payload + sizeof(*udp));
}

static __always_inline int send_to(struct path_config *path, __u32 ifindex)
{
	struct bpf_redir_neigh next = {};

	if (!path->gateway_family)
		return bpf_redirect_neigh(ifindex, 0, 0, 0);
	if (path->gateway_family == 4) {
		next.nh_family = FAMILY_INET;
		next.ipv4_nh = path->gateway[3];
	} else {
		next.nh_family = FAMILY_INET6;
		copy_address(next.ipv6_nh, path->gateway);
	}
	return bpf_redirect_neigh(ifindex, &next, sizeof(next), 0);
}

#endif
