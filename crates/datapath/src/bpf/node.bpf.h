/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Shared by the programs of every datapath: the TUN device, the heartbeat, the counters of refused packets, addresses
 * and checksums. */
#ifndef SEGUE_NODE_H
#define SEGUE_NODE_H

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
#define HEARTBEAT_TIMEOUT_NS (HEARTBEAT_TIMEOUT_S * 1000000000ULL)
#define PROTO_TCP 6
#define ECN_MASK 3
#define ECN_CE 3
/* Keeps the compiler from merging comparisons of a length: the verifier of Linux 6.1 learns bounds only from one
 * comparison at a time, and none from a comparison with zero. */
#define apart(value) asm volatile("" : "+r"(value))
#define ALIGNED __attribute__((aligned(8)))

/* Linux 6.3 and later; older headers lack the names. */
#define DECAP_L3_IPV4 (1ULL << 7)
#define DECAP_L3_IPV6 (1ULL << 8)

struct inner_key {
	__u32 address[4];
};

const volatile __u32 mark = 0;
const volatile __u32 tun_ifindex = 0;

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
	__type(value, struct sign_of_life);
} segue_alive SEC(".maps");

static __always_inline void count(enum drop_reason reason)
{
	__u32 key = reason;
	__u64 *value = bpf_map_lookup_elem(&segue_drops, &key);

	if (value)
		*value += 1; /* per CPU, and TC programs do not nest on a CPU */
}

static __always_inline int drop(enum drop_reason reason)
{
	count(reason);
	return TC_ACT_SHOT;
}

/* True if the daemon has missed its heartbeats for some seconds: programs then behave as if they were absent. */
static __always_inline int daemon_is_gone(__u64 now_ns)
{
	__u32 zero = 0;
	struct sign_of_life *alive = bpf_map_lookup_elem(&segue_alive, &zero);

	return !alive || (__s64)(now_ns - alive->at_ns) > (__s64)HEARTBEAT_TIMEOUT_NS;
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

static __always_inline int same_address(const __u32 a[4], const __u32 b[4])
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

static __always_inline int is_mapped(const __u32 address[4])
{
	return !address[0] && !address[1] && address[2] == bpf_htonl(0xffff);
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* Sum of the UDP pseudo-header; `len` is the length of the datagram in network order. */
static __always_inline __u64 pseudo_sum(const __u32 local[4], const __u32 remote[4], __u16 len)
{
	__u64 sum = bpf_htons(IPPROTO_UDP) + (__u64)len;

	/* The mapped prefix of an IPv4 address adds ffff, which is zero in this arithmetic. */
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)local[i] + remote[i];
	return sum;
}

/* The UDP checksum for a `sum`: never zero, which would mean that there is no checksum. */
static __always_inline __u16 udp_check(__u64 sum)
{
	__u16 check = ~fold(sum);

	return check ? check : 0xffff;
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

/* Prepends a frame header without addresses; bpf_redirect_neigh fills in the addresses. */
static __always_inline int push_ethernet(struct __sk_buff *skb, __u16 ethertype)
{
	return bpf_skb_change_head(skb, ETH_HLEN, 0) ||
	       bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, 2, 0);
}

#endif
