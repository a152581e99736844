/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Probes that arrive: requests are answered in place, responses are handed to the daemon. */
#ifndef SEGUE_ANSWER_H
#define SEGUE_ANSWER_H

#include "outer.bpf.h"
#include "probe.bpf.h"

#define SEEN (1ULL << 32)

/* Takes note of a sequence number; false if it is not newer than the last. */
static __always_inline int is_newer(struct path_state *state, __u32 seq)
{
	__u64 last = state->last_seq;

	if (last & SEEN && (__s32)(seq - (__u32)last) <= 0)
		return 0;
	/* Of two copies on two processors one wins. */
	return __sync_val_compare_and_swap(&state->last_seq, last, SEEN | seq) == last;
}

static __always_inline int same_address(const __u32 a[4], const __u32 b[4])
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

static __always_inline void learn_endpoint(struct path_state *state, const struct outer *outer,
					   __u32 ifindex)
{
	struct endpoint *now = &state->learned[state->current & 1];
	struct endpoint *next = &state->learned[~state->current & 1];

	if (now->family == outer->family && now->remote_port == outer->remote_port &&
	    now->ifindex == ifindex && same_address(now->remote, outer->remote) &&
	    same_address(now->local, outer->local))
		return;
	copy_address(next->local, outer->local);
	copy_address(next->remote, outer->remote);
	next->remote_port = outer->remote_port;
	next->ifindex = ifindex;
	next->family = outer->family;
	__sync_fetch_and_xor(&state->current, 1);
}

static __always_inline void report(__u32 slot, __u8 kind, __u64 at_ns, __u32 received,
				   const struct outer *outer, const struct probe_packet *packet)
{
	struct probe_event event = {
		.at_ns = at_ns,
		.slot = slot,
		.received = received,
		.remote_port = outer->remote_port,
		.kind = kind,
		.k = packet->header.k,
		.family = outer->family,
		.probe = packet->probe,
	};

	copy_address(event.remote, outer->remote);
	if (bpf_ringbuf_output(&segue_events, &event, sizeof(event), 0))
		count(DROP_QUEUE_FULL);
}

static __always_inline int turn_frame_round(struct __sk_buff *skb)
{
	__u8 addresses[2 * ETH_ALEN], turned[2 * ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, addresses, sizeof(addresses)))
		return -1;
	__builtin_memcpy(turned, addresses + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(turned + ETH_ALEN, addresses, ETH_ALEN);
	return bpf_skb_store_bytes(skb, 0, turned, sizeof(turned), 0);
}

/* Source becomes destination; the UDP checksum does not notice. */
static __always_inline int turn_addresses_round(struct __sk_buff *skb, const struct outer *outer)
{
	__u16 ports[2] = { port, outer->remote_port };

	if (outer->family == 4) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
			return -1;
		ip.saddr = outer->local[3];
		ip.daddr = outer->remote[3];
		ip.ttl = TTL;
		ip.check = 0;
		ip.check = ipv4_checksum(&ip);
		if (bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0))
			return -1;
	} else {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
			return -1;
		copy_address(ip.saddr.s6_addr32, outer->local);
		copy_address(ip.daddr.s6_addr32, outer->remote);
		ip.hop_limit = TTL;
		if (bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0))
			return -1;
	}
	return bpf_skb_store_bytes(skb, outer->at - sizeof(struct udphdr), ports, sizeof(ports), 0);
}

static __always_inline int answer(struct __sk_buff *skb, const struct outer *outer,
				  const struct path_config *path, struct path_state *state,
				  struct probe_packet *request, __u64 at_ns, __u32 received)
{
	const __u32 checksum_at = outer->at - sizeof(struct udphdr) + offsetof(struct udphdr, check);
	struct probe_packet reply = *request;
	__u32 now;
	__s64 change;

	if (turn_frame_round(skb) || turn_addresses_round(skb, outer))
		return drop(DROP_ENCAPSULATION);
	reply.header.version_type = HEADER_VERSION << 4 | TYPE_RESPONSE;
	reply.header.index = path->tx_index;
	reply.header.cookie = path->tx_cookie;
	reply.probe.heard = bpf_htons(path->heard);
	reply.probe.r = bpf_htonl(received);
	reply.probe.ss = bpf_htonl(__sync_fetch_and_add(&state->tx_packets, 1) + 1);
	now = stamp_us(bpf_ktime_get_ns());
	reply.probe.t_ss = bpf_htonl(now);
	reply.probe.dt = bpf_htonl(now - stamp_us(at_ns));
	reply.mac = probe_mac(&reply, path->key0, path->key1);
	change = bpf_csum_diff((void *)request, sizeof(*request), (void *)&reply, sizeof(reply), 0);
	/* By difference: right whether the checksum is complete, left to the device, or absent. */
	if (bpf_skb_store_bytes(skb, outer->at, &reply, sizeof(reply), BPF_F_RECOMPUTE_CSUM) ||
	    bpf_l4_csum_replace(skb, checksum_at, 0, change, BPF_F_MARK_MANGLED_0))
		return drop(DROP_ENCAPSULATION);
	skb->mark = mark;
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline int handle_probe(struct __sk_buff *skb, __u32 slot,
					const struct outer *outer, const struct path_config *path,
					struct path_state *state)
{
	__u8 type = outer->header.version_type & 15;
	__u64 at_ns = bpf_ktime_get_ns();
	struct probe_packet packet;
	__u32 seq, received;
	__u8 kind;

	if (type != (is_anchor ? TYPE_REQUEST : TYPE_RESPONSE))
		return drop(DROP_TYPE);
	if (outer->payload < sizeof(packet))
		return drop(DROP_TRUNCATED);
	if (outer->payload > sizeof(packet))
		return drop(DROP_FIELD);
	if (bpf_skb_load_bytes(skb, outer->at, &packet, sizeof(packet)))
		return drop(DROP_TRUNCATED);
	if (probe_mac(&packet, path->key0, path->key1) != packet.mac)
		return drop(DROP_MAC);
	seq = bpf_ntohl(packet.probe.seq);
	if (type == TYPE_REQUEST)
		kind = KIND_REQUEST;
	else
		kind = outer->header.flags & FLAG_UNSOLICITED ? KIND_UNSOLICITED : KIND_RESPONSE;
	if (kind == KIND_RESPONSE ? (__s32)(seq - state->sent_seq) > 0 : !is_newer(state, seq))
		return drop(DROP_REPLAY);
	received = __sync_fetch_and_add(&state->rx_packets, 1) + 1;
	if (kind == KIND_REQUEST)
		learn_endpoint(state, outer, skb->ifindex);
	report(slot, kind, at_ns, received, outer, &packet);
	if (kind != KIND_REQUEST)
		return TC_ACT_SHOT; /* consumed */
	return answer(skb, outer, path, state, &packet, at_ns, received);
}

#endif
