/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Records when numbered packets enter and leave a node, at the devices on both sides, to measure the node from
 * outside. A numbered packet is UDP over IPv6, plain or encapsulated in IPv6; its payload begins with PASSAGE_MAGIC and
 * its number, both in network order.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PASSAGE_MAGIC 0x53475031 /* SGP1 */
#define HEADERS_MAX 2

struct passage {
	__u64 in_ns;
	__u64 out_ns;
	__u64 poll;    /* number of the NAPI poll in which it arrived, per processor */
	__u32 cpu;     /* processor of that poll */
	__u32 towards; /* last four bytes of its outermost destination when it left */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set when loaded */
	__type(key, __u32);
	__type(value, struct passage);
} segue_passages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} segue_polls SEC(".maps");

struct numbered {
	__u32 magic;
	__u32 number;
};

_Static_assert(sizeof(struct passage) == 32, "a passage");

/* The map entry of a packet's passage; 0 if the packet has no number. */
static __always_inline struct passage *passage_of(struct __sk_buff *skb, __u32 *towards)
{
	struct numbered payload;
	struct ipv6hdr ip;
	__u32 at = ETH_HLEN;

	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
#pragma unroll
	for (int i = 0; i < HEADERS_MAX; i++) {
		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return 0;
		if (i == 0)
			*towards = bpf_ntohl(ip.daddr.in6_u.u6_addr32[3]);
		at += sizeof(ip);
		if (ip.nexthdr != IPPROTO_IPV6)
			break;
	}
	if (ip.nexthdr != IPPROTO_UDP)
		return 0;
	at += sizeof(struct udphdr);
	if (bpf_skb_load_bytes(skb, at, &payload, sizeof(payload)))
		return 0;
	if (payload.magic != bpf_htonl(PASSAGE_MAGIC))
		return 0;
	payload.number = bpf_ntohl(payload.number);
	return bpf_map_lookup_elem(&segue_passages, &payload.number);
}

SEC("tc")
int segue_pass_in(struct __sk_buff *skb)
{
	__u32 towards, zero = 0;
	struct passage *p = passage_of(skb, &towards);
	__u64 *polls;

	if (p && !p->in_ns) {
		polls = bpf_map_lookup_elem(&segue_polls, &zero);
		p->poll = polls ? *polls : 0;
		p->cpu = bpf_get_smp_processor_id();
		p->in_ns = bpf_ktime_get_ns();
	}
	return TC_ACT_UNSPEC;
}

SEC("tc")
int segue_pass_out(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 towards = 0;
	struct passage *p = passage_of(skb, &towards);

	if (p && !p->out_ns) {
		p->towards = towards;
		p->out_ns = now;
	}
	return TC_ACT_UNSPEC;
}

/* The end of a NAPI poll: later packets on this processor arrive in another poll. */
SEC("raw_tp/napi_poll")
int segue_pass_poll(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0;
	__u64 *polls = bpf_map_lookup_elem(&segue_polls, &zero);

	if (polls)
		*polls += 1;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
