/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Reads the outer headers of an arriving packet and checks its tunnel header. */
#ifndef SEGUE_OUTER_H
#define SEGUE_OUTER_H

#include "common.bpf.h"

struct outer {
	__u32 local[4]; /* destination */
	__u32 remote[4];
	__u32 link;     /* bytes of frame header in front of the outer IP header */
	__u32 at;       /* offset of the tunnel header */
	__u32 payload;  /* bytes from the tunnel header on, according to the UDP header */
	__u16 remote_port;
	__u16 local_id; /* number of the destination, 0 if it is not a local address */
	__u8 family;
	__u8 tos;
	struct tunnel_header header;
};

#define NOT_OURS -1
#define TOO_SHORT 1

/* Reads up to and including the tunnel header; 0, NOT_OURS or TOO_SHORT. `outer` must be all zero
 * except for `link`. */
static __always_inline int read_outer(struct __sk_buff *skb, struct outer *outer)
{
	struct udphdr udp;
	__u32 udp_at;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)) || ip.ihl != 5 ||
		    ip.protocol != IPPROTO_UDP || ip.frag_off & bpf_htons(FRAGMENT_MASK))
			return NOT_OURS;
		map_v4(outer->local, ip.daddr);
		map_v4(outer->remote, ip.saddr);
		outer->family = 4;
		outer->tos = ip.tos;
		udp_at = outer->link + sizeof(ip);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_UDP)
			return NOT_OURS;
		copy_address(outer->local, ip.daddr.s6_addr32);
		copy_address(outer->remote, ip.saddr.s6_addr32);
		outer->family = 6;
		outer->tos = bpf_ntohl(*(__be32 *)&ip) >> 20 & 0xff;
		udp_at = outer->link + sizeof(ip);
	} else {
		return NOT_OURS;
	}
	if (bpf_skb_load_bytes(skb, udp_at, &udp, sizeof(udp)) || udp.dest != port)
		return NOT_OURS;
	outer->remote_port = udp.source;
	outer->at = udp_at + sizeof(udp);
	outer->payload = bpf_ntohs(udp.len);
	if (outer->payload < sizeof(udp) || udp_at + outer->payload > skb->len)
		return TOO_SHORT;
	outer->payload -= sizeof(udp);
	if (outer->payload < sizeof(outer->header) ||
	    bpf_skb_load_bytes(skb, outer->at, &outer->header, sizeof(outer->header)))
		return TOO_SHORT;
	return 0;
}

/* The checks of segue_wire::Header::parse in the same order; a drop reason, or -1 for a valid
 * header. */
static __always_inline int check_header(const struct tunnel_header *header)
{
	__u8 type = header->version_type & 15;

	if (header->version_type >> 4 != HEADER_VERSION)
		return DROP_VERSION;
	if (type > TYPE_SIZE)
		return DROP_TYPE;
	if (header->flags & ~(type == TYPE_DATA ? 1 : type == TYPE_RIDE ? 7 : type == TYPE_SIZE ? 0 : 3))
		return DROP_FIELD;
	if (type == TYPE_RIDE && header->flags >= (FLAG_RIDE_RESPONSE | FLAG_RIDE_REPORT))
		return DROP_FIELD;
	if (type == TYPE_RESPONSE && header->flags == (FLAG_UNSOLICITED | FLAG_QUESTION))
		return DROP_FIELD;
	if (header->age && type >= TYPE_RESPONSE)
		return DROP_FIELD;
	if ((type == TYPE_DATA || type == TYPE_SIZE) && header->k)
		return DROP_FIELD;
	return -1;
}

#endif
