/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Answers a request within its frame, in an anchor's XDP program. Only clearly valid requests are handled;
 * everything else passes unchanged, and the TC program refuses it, counts it, or holds its response. */
#ifndef SEGUE_REFLECT_H
#define SEGUE_REFLECT_H

#include "arrive.bpf.h"
#include "datagram.bpf.h"

static __always_inline void turn_ethernet_round(struct ethhdr *eth)
{
	__u32 *word = (void *)eth;
	__u16 *half = (void *)eth;
	__u32 to = word[0];
	__u16 rest = half[2];

	word[0] = half[3] | (__u32)half[4] << 16;
	half[2] = half[5];
	half[3] = (__u16)to;
	half[4] = to >> 16;
	half[5] = rest;
}

/* Records a request in the state; false if another copy was faster. */
static __always_inline int take(__u32 slot, const struct outer *outer, __u32 ifindex,
				const struct path_config *path, struct path_state *state,
				const struct probe_packet *packet, __u64 at_ns, __u32 *received,
				__u32 *challenge)
{
	__u64 last;
	int new;

	if (!is_newer(&state->newest, bpf_ntohl(packet->probe.seq), packet, &last))
		return 0;
	*received = __sync_fetch_and_add(&state->rx_packets, 1) + 1;
	new = learn_endpoint(slot, state, outer, ifindex, packet, at_ns, challenge);
	new |= says_new(state, last, state->newest, packet->probe.heard);
	take_request(state, path, at_ns, *received, packet);
	new |= crosses(state);
	if (new || !(path->flags & PATH_QUIET))
		report(slot, KIND_REQUEST, 0, at_ns, *received, outer, packet);
	return 1;
}

/* Masks within the words of a probe packet, in this machine's byte order. */
#define K_OF_WORD (0xffULL << 16)
#define T_KA_OF_WORD (0xffffULL << 48)

_Static_assert(__builtin_offsetof(struct tunnel_header, k) == 2, "K in the first word");
_Static_assert(__builtin_offsetof(struct probe_packet, probe.t_ka_ms) == 5 * 8 + 6, "T_KA in the sixth");

/* Turns the request into its response, except for the addresses. The response leaves in the same microsecond
 * as the request arrives, so one clock reading serves for both stamps. */
static __always_inline void respond(const struct outer *outer, const struct path_config *path,
				    struct path_state *state, struct probe_datagram *datagram,
				    __u64 at_ns, __u32 received, __u32 challenge)
{
	__u64 *packet = (void *)&datagram->packet;
	__u32 sent = __sync_fetch_and_add(&state->tx_packets, 1) + 1;
	/* Writes whole words, because the authenticator would be slow to read partly written ones. K, the
	 * number, t_Sc, Sc and T_KA of the request are kept. */
	__u64 word[MAC_WORDS] = {
		(HEADER_VERSION << 4 | TYPE_RESPONSE) | (packet[0] & K_OF_WORD) |
			(__u64)path->tx_index << 32,
		path->tx_cookie,
		packet[2],
		bpf_htonl(challenge ? challenge : stamp_us(at_ns)),
		(__u32)packet[4] | (__u64)bpf_htonl(sent) << 32,
		bpf_htonl(received) | (__u64)bpf_htons(path->heard) << 32 |
			(packet[5] & T_KA_OF_WORD),
	};

#pragma unroll
	for (int i = 0; i < MAC_WORDS; i++)
		packet[i] = word[i];
	packet[MAC_WORDS] = words_mac(word, path->key0, path->key1, 1);
	datagram->udp.dest = datagram->udp.source;
	datagram->udp.source = port;
	if (datagram->udp.check)
		datagram->udp.check = datagram_checksum(outer->local, outer->remote, datagram);
}

/* True if the datagram, which is for our port, was a valid request and has been turned into the response.
 * `outer` has both addresses and the family. */
static __always_inline int reflect(struct xdp_md *ctx, struct outer *outer,
				   struct probe_datagram *datagram)
{
	struct probe_packet *packet = &datagram->packet;
	__u64 at_ns = bpf_ktime_get_ns();
	__u32 slot = bpf_ntohl(packet->header.index), received, challenge;
	struct path_config *path = path_of(slot);
	struct path_state *state = state_of(slot);

	if (!path || !state || path->flags & PATH_RIDES || !packet_count(&packet->header) ||
	    packet->header.cookie != path->rx_cookie || check_header(&packet->header) >= 0)
		return 0;
	outer->local_id = local_id_near(outer->local, state->endpoint.local);
	outer->remote_port = datagram->udp.source;
	if (!outer->local_id || daemon_is_gone(at_ns) ||
	    probe_mac(packet, path->key0, path->key1) != packet->mac)
		return 0;
	if (!take(slot, outer, ctx->ingress_ifindex, path, state, packet, at_ns, &received,
		  &challenge))
		return 0;
	respond(outer, path, state, datagram, at_ns, received, challenge);
	return 1;
}

static __always_inline int reflect_v4(struct xdp_md *ctx, struct ethhdr *eth)
{
	struct iphdr *ip = (void *)(eth + 1);
	struct probe_datagram *datagram = (void *)(ip + 1);
	struct outer outer = { .family = 4 };
	__u16 *ttl_protocol = (void *)&ip->ttl, before, after;
	__u32 address;

	if ((void *)(datagram + 1) > (void *)(long)ctx->data_end ||
	    ip->tot_len != bpf_htons(sizeof(*ip) + PROBE_DATAGRAM) ||
	    datagram->udp.len != bpf_htons(PROBE_DATAGRAM))
		return XDP_PASS;
	map_v4(outer.local, ip->daddr);
	map_v4(outer.remote, ip->saddr);
	if (!reflect(ctx, &outer, datagram))
		return XDP_PASS;
	turn_ethernet_round(eth);
	address = ip->daddr;
	ip->daddr = ip->saddr;
	ip->saddr = address;
	before = *ttl_protocol;
	after = TTL | (before & 0xff00);
	*ttl_protocol = after;
	ip->check = ~fold((__u16)~ip->check + (__u64)(__u16)~before + after);
	return XDP_TX;
}

static __always_inline int reflect_v6(struct xdp_md *ctx, struct ethhdr *eth)
{
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct probe_datagram *datagram = (void *)(ip + 1);
	struct outer outer = { .family = 6 };

	if ((void *)(datagram + 1) > (void *)(long)ctx->data_end ||
	    ip->payload_len != bpf_htons(PROBE_DATAGRAM) ||
	    datagram->udp.len != bpf_htons(PROBE_DATAGRAM))
		return XDP_PASS;
	copy_address(outer.local, ip->daddr.s6_addr32);
	copy_address(outer.remote, ip->saddr.s6_addr32);
	if (!reflect(ctx, &outer, datagram))
		return XDP_PASS;
	turn_ethernet_round(eth);
	copy_address(ip->saddr.s6_addr32, outer.local);
	copy_address(ip->daddr.s6_addr32, outer.remote);
	ip->hop_limit = TTL;
	return XDP_TX;
}

/* True if a frame's tunnel header declares a request. */
static __always_inline int is_request(__u8 version_type)
{
	return is_anchor && version_type == (HEADER_VERSION << 4 | TYPE_REQUEST);
}

#endif
