/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* TC egress of the TUN device: inner packets become tunnel packets, ordered probes real ones. */
#include "parse.bpf.h"
#include "probe.bpf.h"

struct outer_v4 {
	struct iphdr ip;
	struct udphdr udp;
	struct tunnel_header header;
} __attribute__((packed));

struct outer_v6 {
	struct ipv6hdr ip;
	struct udphdr udp;
	struct tunnel_header header;
} __attribute__((packed));

#define ENCAP_FLAGS                                                                                \
	(BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2(sizeof(struct tunnel_header)) |     \
	 BPF_F_ADJ_ROOM_FIXED_GSO)

/* Puts a frame header without addresses in front; bpf_redirect_neigh fills the addresses in. */
static __always_inline int push_ethernet(struct __sk_buff *skb, __u16 ethertype)
{
	return bpf_skb_change_head(skb, ETH_HLEN, 0) ||
	       bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, 2, 0);
}

/* 0: encapsulated; 1: untouched, the kernel does not encapsulate this; -1: spoilt. */
static __always_inline int encapsulate_v4(struct __sk_buff *skb, const struct endpoint *to,
					  const struct tunnel_header *header, __u8 tos)
{
	struct outer_v4 outer ALIGNED = {};
	__u32 len = skb->len;

	if (len + sizeof(outer) > 0xffff ||
	    bpf_skb_adjust_room(skb, sizeof(outer), BPF_ADJ_ROOM_MAC,
				ENCAP_FLAGS | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4))
		return 1;
	fill_v4(&outer.ip, &outer.udp, to, tos, len + sizeof(*header));
	outer.header = *header;
	if (bpf_skb_store_bytes(skb, 0, &outer, sizeof(outer), 0))
		return -1;
	return push_ethernet(skb, bpf_htons(ETH_P_IP)) ? -1 : 0;
}

static __always_inline int encapsulate_v6(struct __sk_buff *skb, const struct endpoint *to,
					  const struct tunnel_header *header, __u8 tos)
{
	struct outer_v6 outer ALIGNED = {};
	__u32 len = skb->len;

	if (len + sizeof(outer) > 0xffff ||
	    bpf_skb_adjust_room(skb, sizeof(outer), BPF_ADJ_ROOM_MAC,
				ENCAP_FLAGS | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return 1;
	fill_v6(&outer.ip, &outer.udp, to, tos, len + sizeof(*header));
	outer.header = *header;
	if (bpf_skb_store_bytes(skb, 0, &outer, sizeof(outer), 0))
		return -1;
	return push_ethernet(skb, bpf_htons(ETH_P_IPV6)) ? -1 : 0;
}

/* The path that a packet of a flow takes, one `via` followed; null if it is gone. */
static __always_inline struct path_config *route(__u32 *slot, __u8 *flags)
{
	struct path_config *path = path_of(*slot);

	if (!path || !(path->flags & PATH_VIA))
		return path;
	if (path->flags & PATH_VIA_ONE_WAY)
		*flags = FLAG_DATA_ONE_WAY;
	*slot = path->via_slot;
	return path_of(*slot);
}

/* `again`: the daemon has had it already, so that passing it on would make a loop. */
static __always_inline int send_data(struct __sk_buff *skb, __u64 now_ns, int again)
{
	struct tunnel_header header = { .version_type = HEADER_VERSION << 4 | TYPE_DATA };
	struct inner inner = {};
	__u32 len = skb->len, slot;
	struct amount amount;
	struct path_config *path;
	struct path_state *state;
	struct flow_value *flow;
	struct endpoint *to;
	int result;

	if (parse_inner(skb, 0, len, &inner))
		return drop(DROP_INNER_PACKET);
	flow = bpf_map_lookup_elem(&segue_flows, &inner.key);
	if (!flow)
		return again ? drop(DROP_NO_REMOTE) : PASS;
	slot = flow->slot;
	path = route(&slot, &header.flags);
	state = state_of(slot);
	if (!path || !state)
		return again ? drop(DROP_NO_REMOTE) : PASS;
	to = endpoint_of(path, state);
	if (!to->family || !to->ifindex)
		return drop(DROP_NO_REMOTE);
	if (skb->gso_size && inner.key.protocol != PROTO_TCP)
		return again ? drop(DROP_ENCAPSULATION) : PASS;
	amount = measure(skb, 0, len, &inner); /* adjust_room zeroes gso_segs */
	header.index = path->tx_index;
	header.cookie = path->tx_cookie;
	result = to->family == 4 ? encapsulate_v4(skb, to, &header, inner.tos)
				 : encapsulate_v6(skb, to, &header, inner.tos);
	if (result > 0 && !again)
		return PASS;
	if (result)
		return drop(DROP_ENCAPSULATION);
	__sync_fetch_and_add(&state->tx_packets, amount.packets);
	__sync_fetch_and_add(&state->tx_bytes, amount.bytes);
	__sync_fetch_and_add(&flow->packets, amount.packets);
	__sync_fetch_and_add(&flow->bytes, amount.bytes);
	flow->last_seen_ns = now_ns;
	skb->mark = mark;
	return send_to(path, to->ifindex);
}

/* Stamps, counts and authenticates a probe as the last thing before it leaves. */
static __always_inline void complete(struct probe_packet *packet, const struct probe_order *order,
				     const struct path_config *path, struct path_state *state)
{
	__u32 sent = __sync_fetch_and_add(&state->tx_packets, 1) + 1;
	__u32 now = stamp_us(bpf_ktime_get_ns());

	packet->header.version_type = HEADER_VERSION << 4;
	packet->header.index = path->tx_index;
	packet->header.cookie = path->tx_cookie;
	packet->header.k = order->k;
	packet->probe = order->probe;
	packet->probe.dt = bpf_htonl(now - order->held_since);
	if (order->kind == KIND_REQUEST) {
		packet->header.version_type |= TYPE_REQUEST;
		packet->probe.t_sc = bpf_htonl(now);
		packet->probe.sc = bpf_htonl(sent);
		state->sent_seq = bpf_ntohl(packet->probe.seq);
	} else {
		packet->header.version_type |= TYPE_RESPONSE;
		packet->header.flags = FLAG_UNSOLICITED;
		packet->probe.t_ss = bpf_htonl(now);
		packet->probe.ss = bpf_htonl(sent);
		packet->probe.r = bpf_htonl(state->rx_packets);
		packet->probe.heard = bpf_htons(path->heard);
	}
	packet->mac = probe_mac(packet, path->key0, path->key1);
}

static __always_inline __u16 udp_checksum(const struct endpoint *to, struct udphdr *udp,
					  struct probe_packet *packet)
{
	__u64 sum = bpf_htons(IPPROTO_UDP) + (__u64)udp->len;
	__u16 folded;

	/* The mapped prefix of an IPv4 address adds ffff, which is zero in this arithmetic. */
#pragma unroll
	for (int i = 0; i < 4; i++)
		sum += (__u64)to->local[i] + to->remote[i];
	sum += udp->source + (__u64)udp->dest + udp->len;
	sum += (__u32)bpf_csum_diff(0, 0, (void *)packet, sizeof(*packet), 0);
	folded = ~fold(sum);
	return folded ? folded : 0xffff;
}



static __always_inline int probe_v4(struct __sk_buff *skb, const struct endpoint *to,
				    struct probe_packet *packet)
{
	struct outer_v4 outer ALIGNED = {};
	__u16 ethertype = bpf_htons(ETH_P_IP);
	const __u32 extra = offsetof(struct outer_v4, header);

	fill_v4(&outer.ip, &outer.udp, to, 0, sizeof(*packet));
	outer.udp.check = udp_checksum(to, &outer.udp, packet);
	return bpf_skb_change_head(skb, ETH_HLEN + extra, 0) ||
	       bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, 2, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN, &outer, extra, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + extra, packet, sizeof(*packet), 0);
}

static __always_inline int probe_v6(struct __sk_buff *skb, const struct endpoint *to,
				    struct probe_packet *packet)
{
	struct outer_v6 outer ALIGNED = {};
	__u16 ethertype = bpf_htons(ETH_P_IPV6);
	const __u32 extra = offsetof(struct outer_v6, header);

	fill_v6(&outer.ip, &outer.udp, to, 0, sizeof(*packet));
	outer.udp.check = udp_checksum(to, &outer.udp, packet);
	return bpf_skb_change_head(skb, ETH_HLEN + extra, 0) ||
	       bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, 2, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN, &outer, extra, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + extra, packet, sizeof(*packet), 0);
}

static __always_inline int send_probe(struct __sk_buff *skb)
{
	struct probe_packet packet = {};
	struct probe_order order;
	struct path_config *path;
	struct path_state *state;
	struct endpoint *to;
	int failed;

	if (skb->len != sizeof(order) || bpf_skb_load_bytes(skb, 0, &order, sizeof(order)))
		return drop(DROP_ENCAPSULATION);
	path = path_of(order.slot);
	state = state_of(order.slot);
	if (!path || !state)
		return drop(DROP_NO_REMOTE);
	to = endpoint_of(path, state);
	if (!to->family || !to->ifindex ||
	    skb->protocol != (to->family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6)))
		return drop(DROP_NO_REMOTE);
	complete(&packet, &order, path, state);
	failed = to->family == 4 ? probe_v4(skb, to, &packet) : probe_v6(skb, to, &packet);
	if (failed)
		return drop(DROP_ENCAPSULATION);
	skb->mark = mark;
	return send_to(path, to->ifindex);
}

SEC("tc")
int segue_egress(struct __sk_buff *skb)
{
	__u64 now_ns = bpf_ktime_get_coarse_ns();
	__u32 from = skb->mark;

	if (daemon_is_gone(now_ns))
		return from == MARK_PROBE || from == MARK_AGAIN ? TC_ACT_SHOT : PASS;
	if (from == MARK_PROBE)
		return send_probe(skb);
	return send_data(skb, now_ns, from == MARK_AGAIN);
}
