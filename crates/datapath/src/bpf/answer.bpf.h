/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Turns a request into its response in place. The response leaves over the interface on which the
 * request arrived. */
#ifndef SEGUE_ANSWER_H
#define SEGUE_ANSWER_H

#include "outer.bpf.h"
#include "probe.bpf.h"

static __always_inline int turn_frame_round(struct __sk_buff *skb)
{
	__u8 addresses[2 * ETH_ALEN], turned[2 * ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, addresses, sizeof(addresses)))
		return -1;
	__builtin_memcpy(turned, addresses + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(turned + ETH_ALEN, addresses, ETH_ALEN);
	return bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0);
}

/* Swaps source and destination, which leaves the UDP checksum unchanged. */
static __always_inline int turn_addresses_round(struct __sk_buff *skb, const struct outer *outer)
{
	__u16 ports[2] = { port, outer->remote_port };

	if (outer->family == 4) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)))
			return -1;
		ip.saddr = outer->local[3];
		ip.daddr = outer->remote[3];
		ip.ttl = TTL;
		ip.check = 0;
		ip.check = ipv4_checksum(&ip);
		if (bpf_skb_store_bytes(skb, outer->link, &ip, sizeof(ip), 0))
			return -1;
	} else {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)))
			return -1;
		copy_address(ip.saddr.s6_addr32, outer->local);
		copy_address(ip.daddr.s6_addr32, outer->remote);
		ip.hop_limit = TTL;
		if (bpf_skb_store_bytes(skb, outer->link, &ip, sizeof(ip), 0))
			return -1;
	}
	return bpf_skb_store_bytes(skb, outer->at - sizeof(struct udphdr), ports, sizeof(ports), 0);
}

/* `challenge` is the value that the source must echo, sent as t_Ss; 0 for none. */
static __always_inline int answer(struct __sk_buff *skb, const struct outer *outer,
				  const struct path_config *path, struct path_state *state,
				  const struct probe_packet *request,
				  struct probe_packet *reply, __u64 at_ns, __u32 received,
				  __u32 challenge)
{
	const __u32 checksum_at = outer->at - sizeof(struct udphdr) + offsetof(struct udphdr, check);
	__u32 now;
	__s64 change;

	if ((outer->link && turn_frame_round(skb)) || turn_addresses_round(skb, outer))
		return drop(DROP_ENCAPSULATION);
	*reply = *request;
	reply->header.version_type = HEADER_VERSION << 4 | TYPE_RESPONSE;
	/* other flags have a different meaning in a response */
	reply->header.flags &= FLAG_QUESTION;
	reply->header.age = 0;
	reply->header.index = path->tx_index;
	reply->header.cookie = path->tx_cookie;
	reply->probe.heard = bpf_htons(path->heard);
	reply->probe.r = bpf_htonl(received);
	reply->probe.ss = bpf_htonl(__sync_fetch_and_add(&state->tx_packets,
							 packet_count(&reply->header)) +
				    packet_count(&reply->header));
	now = stamp_us(bpf_ktime_get_ns());
	reply->probe.t_ss = bpf_htonl(challenge ? challenge : now);
	reply->probe.dt = bpf_htonl(now - stamp_us(at_ns));
	reply->mac = probe_mac(reply, path->key0, path->key1);
	change = bpf_csum_diff((void *)request, sizeof(*request), (void *)reply, sizeof(*reply), 0);
	/* Incremental update: correct whether the checksum is complete, left to the device, or
	 * absent. */
	if (bpf_skb_store_bytes(skb, outer->at, reply, sizeof(*reply), BPF_F_RECOMPUTE_CSUM) ||
	    bpf_l4_csum_replace(skb, checksum_at, 0, change, BPF_F_MARK_MANGLED_0))
		return drop(DROP_ENCAPSULATION);
	skb->mark = mark;
	return bpf_redirect(skb->ifindex, 0);
}

#endif
