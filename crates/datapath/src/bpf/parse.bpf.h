/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Parses an inner packet by the rules of segue_wire::flow. */
#ifndef SEGUE_PARSE_H
#define SEGUE_PARSE_H

#include "node.bpf.h"

#define MAX_EXTENSIONS 4

struct inner {
	struct flow_key key;
	__u32 len;       /* according to the packet's own header */
	__u32 transport; /* offset of the transport header within the packet */
	__u8 tos;
	__u8 version;
};

static __always_inline void read_ports(struct __sk_buff *skb, __u32 at, __u32 end,
				       struct flow_key *key, int *found)
{
	__u16 ports[2];

	*found = 0;
	switch (key->protocol) {
	case 6:   /* TCP */
	case 17:  /* UDP */
	case 33:  /* DCCP */
	case 132: /* SCTP */
	case 136: /* UDP-Lite */
		break;
	default:
		return;
	}
	if (at + sizeof(ports) > end || bpf_skb_load_bytes(skb, at, ports, sizeof(ports)))
		return;
	key->sport = ports[0];
	key->dport = ports[1];
	*found = 1;
}

static __always_inline int parse_v4(struct __sk_buff *skb, __u32 at, __u32 len, struct inner *inner)
{
	struct iphdr ip;
	int found;

	if (len < sizeof(ip) || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return -1;
	inner->len = bpf_ntohs(ip.tot_len);
	inner->transport = ip.ihl * 4;
	if (inner->transport < sizeof(ip) || inner->len < inner->transport || len < inner->len)
		return -1;
	map_v4(inner->key.src, ip.saddr);
	map_v4(inner->key.dst, ip.daddr);
	inner->key.protocol = ip.protocol;
	inner->tos = ip.tos;
	if (!(ip.frag_off & bpf_htons(FRAGMENT_MASK)))
		read_ports(skb, at + inner->transport, at + inner->len, &inner->key, &found);
	return 0;
}

/* True if the key contains the flow label even if it has ports. */
#ifndef LABEL_BESIDE_PORTS
#define LABEL_BESIDE_PORTS 0
#endif

/* Follows the extension headers; true if ports may follow at `inner->transport`. */
static __always_inline int skip_extensions(struct __sk_buff *skb, __u32 at, struct inner *inner)
{
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		__u8 head[2], next = inner->key.protocol;

		if (next == 44) { /* fragment */
			if (inner->transport < inner->len &&
			    !bpf_skb_load_bytes(skb, at + inner->transport, head, 1))
				inner->key.protocol = head[0];
			return 0;
		}
		if (next != 0 && next != 43 && next != 60)
			return 1;
		if (inner->transport + 2 > inner->len ||
		    bpf_skb_load_bytes(skb, at + inner->transport, head, 2))
			return 0;
		if (inner->transport + 8 + head[1] * 8 > inner->len)
			return 0;
		inner->transport += 8 + head[1] * 8;
		inner->key.protocol = head[0];
	}
	return 1;
}

static __always_inline int parse_v6(struct __sk_buff *skb, __u32 at, __u32 len, struct inner *inner)
{
	struct ipv6hdr ip;
	__u32 first;
	int found = 0;

	if (len < sizeof(ip) || bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return -1;
	inner->len = bpf_ntohs(ip.payload_len) + sizeof(ip);
	inner->transport = sizeof(ip);
	if (len < inner->len)
		return -1;
	copy_address(inner->key.src, ip.saddr.s6_addr32);
	copy_address(inner->key.dst, ip.daddr.s6_addr32);
	inner->key.protocol = ip.nexthdr;
	first = bpf_ntohl(*(__be32 *)&ip);
	inner->tos = first >> 20 & 0xff;
	if (skip_extensions(skb, at, inner))
		read_ports(skb, at + inner->transport, at + inner->len, &inner->key, &found);
	if (!found || LABEL_BESIDE_PORTS)
		inner->key.label = first & 0xfffff;
	return 0;
}

/* Parses the packet of `len` bytes at `at`; 0 if it is valid. `inner` must be all zero. */
static __always_inline int parse_inner(struct __sk_buff *skb, __u32 at, __u32 len,
				       struct inner *inner)
{
	__u8 version;

	if (bpf_skb_load_bytes(skb, at, &version, 1))
		return -1;
	inner->version = version >> 4;
	if (inner->version == 4)
		return parse_v4(skb, at, len, inner);
	if (inner->version == 6)
		return parse_v6(skb, at, len, inner);
	return -1;
}

/* The flow of packets in the other direction; `key` must be all zero. */
static __always_inline void reverse(struct flow_key *key, const struct flow_key *arrived)
{
	copy_address(key->src, arrived->dst);
	copy_address(key->dst, arrived->src);
	key->sport = arrived->dport;
	key->dport = arrived->sport;
	key->protocol = arrived->protocol;
	key->label = arrived->label;
}

/* A packet as it is on the wire. */
struct amount {
	__u32 packets;
	__u32 bytes;
};

/*
 * The number of packets and inner bytes of a packet on the wire: a super-packet is cut into
 * `gso_segs` packets, each with a copy of the headers. Where the kernel does not give this number
 * (for super-packets that came through user space), it is computed from the lengths.
 */
static __always_inline struct amount measure(struct __sk_buff *skb, __u32 at, __u32 len,
					     const struct inner *inner)
{
	struct amount one = { 1, len };
	__u32 size = skb->gso_size, packets = skb->gso_segs, head;
	__u8 offset;

	if (!size || inner->key.protocol != PROTO_TCP ||
	    bpf_skb_load_bytes(skb, at + inner->transport + 12, &offset, 1))
		return one;
	head = inner->transport + (offset >> 4) * 4;
	if (len <= head)
		return one;
	if (!packets)
		packets = (len - head + size - 1) / size;
	one.packets = packets;
	one.bytes = len + (packets - 1) * head;
	return one;
}

#endif
