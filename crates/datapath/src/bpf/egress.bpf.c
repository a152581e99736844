/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* TC egress of the TUN device: encapsulates inner packets, and completes the probes that the daemon has ordered. */
#include "copy.bpf.h"
#include "parse.bpf.h"
#include "ride.bpf.h"

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

/* 0: encapsulated; 1: unchanged, because the kernel cannot encapsulate it; -1: unusable. */
static __always_inline int encapsulate_v4(struct __sk_buff *skb, const struct outer_ends *to,
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

static __always_inline int encapsulate_v6(struct __sk_buff *skb, const struct outer_ends *to,
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

/* The path of a flow's packet, after following one `via`; null if it is gone. A new path in the slot of an old one
 * does not count, and no packet takes another host's path. `over`: the packet has already left on the flow's own
 * path, and the receiver must not rebind the flow because of the second copy. */
static __always_inline struct path_config *route(__u32 *slot, __u32 generation, __u8 *flags, int over)
{
	struct path_config *path = path_of(*slot), *via;

	if (!path || generation_of(path->rx_cookie) != generation)
		return 0;
	if (!(path->flags & (over ? PATH_VIA | PATH_ONE_WAY : PATH_VIA)))
		return path;
	if (path->flags & PATH_ONE_WAY)
		*flags = FLAG_DATA_ONE_WAY;
	*slot = path->via_slot;
	via = path_of(*slot);
	return via && via->owner == path->owner ? via : 0;
}

/* Bytes that are summed at a time, and the maximum number of such steps for a packet. */
#define SUMMED 128
#define SUMMED_TIMES (9216 / SUMMED)

/* Fills in the UDP checksum of a data packet after its frame header, for translators, which may drop packets without
 * one (RFC 7915, 4.5 and 5.1). The checksum covers fields that a device would complete later, so no checksum may be
 * left to devices. */
__noinline int fill_checksum(struct __sk_buff *skb, const struct outer_ends *to)
{
	__u8 bytes[SUMMED] ALIGNED = {};
	__u32 udp_at, at, left;
	__u16 check;
	__u64 sum;

	if (!to)
		return -1;
	udp_at = ETH_HLEN + (to->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	if (skb->len <= udp_at)
		return -1;
	left = skb->len - udp_at;
	sum = pseudo_sum(to->local, to->remote, bpf_htons(left));
	at = udp_at;
	for (int i = 0; i < SUMMED_TIMES && left >= SUMMED; i++) {
		if (bpf_skb_load_bytes(skb, at, bytes, SUMMED))
			return -1;
		sum += (__u32)bpf_csum_diff(0, 0, (void *)bytes, SUMMED, 0);
		at += SUMMED;
		left -= SUMMED;
	}
	if (left >= SUMMED)
		return -1;
	if (left) {
		__builtin_memset(bytes, 0, sizeof(bytes));
		if (bpf_skb_load_bytes(skb, at, bytes, left))
			return -1;
		sum += (__u32)bpf_csum_diff(0, 0, (void *)bytes, SUMMED, 0);
	}
	check = udp_check(sum);
	return bpf_skb_store_bytes(skb, udp_at + offsetof(struct udphdr, check), &check, sizeof(check), 0);
}

/* `again`: the daemon has already had this packet, so passing it on would make a loop. `over`: see `route`. */
static __always_inline int send_data(struct __sk_buff *skb, __u64 now_ns, int again, int over)
{
	struct tunnel_header header = { .version_type = HEADER_VERSION << 4 | TYPE_DATA };
	struct inner inner = {};
	__u32 len = skb->len, slot, flow_packets;
	__u64 bound;
	struct amount amount;
	struct path_config *path;
	struct path_state *state;
	struct flow_value *flow;
	struct outer_ends to = {};
	int result = NO_RIDE, checksums;

	if (parse_inner(skb, 0, len, &inner))
		return drop(DROP_INNER_PACKET);
	flow = bpf_map_lookup_elem(&segue_flows, &inner.key);
	if (!flow)
		return again ? drop(DROP_NO_REMOTE) : PASS;
	bound = *(volatile __u64 *)flow;
	slot = bound;
	path = route(&slot, bound >> 32, &header.flags, over);
	state = state_of(slot);
	if (!path || !state)
		return again ? drop(DROP_NO_REMOTE) : PASS;
	if (ends_of(slot, state, &to))
		return drop(DROP_NO_REMOTE);
	checksums = path->flags & PATH_CHECKSUMS;
	if (skb->gso_size && (checksums || inner.key.protocol != PROTO_TCP))
		return again ? drop(DROP_ENCAPSULATION) : PASS;
	if (checksums && !again)
		return PASS; /* the daemon sends it again, with complete inner checksums */
	if (path->flags & PATH_FOLLOWS_USE && is_to_be_copied(slot, now_ns))
		keep_copy(skb, slot, now_ns);
	amount = measure(skb, 0, len, &inner); /* adjust_room zeroes gso_segs */
	header.index = path->tx_index;
	header.cookie = path->tx_cookie;
	if (is_anchor)
		header.age = stated_age(state, now_ns);
	if (path->flags & PATH_RIDES && !skb->gso_size)
		result = ride(skb, slot, &to, header.flags, inner.tos);
	if (!result) {
		amount.packets = 0; /* counted with the probe */
		measure_sending(state, host_of(slot), path, now_ns, 1);
		mark_probe(skb, slot, sizeof(struct probe_packet) + len);
	}
	if (result == NO_RIDE)
		result = to.family == 4 ? encapsulate_v4(skb, &to, &header, inner.tos)
					: encapsulate_v6(skb, &to, &header, inner.tos);
	if (result > 0 && !again)
		return PASS;
	if (result || (checksums && fill_checksum(skb, &to)))
		return drop(DROP_ENCAPSULATION);
	flow_packets = amount.packets ? amount.packets : 1;
	if (amount.packets)
		__sync_fetch_and_add(&state->tx_packets, amount.packets);
	__sync_fetch_and_add(&state->tx_bytes, amount.bytes);
	__sync_fetch_and_add(&flow->packets, flow_packets);
	if (slot != (__u32)bound)
		__sync_fetch_and_add(&flow->elsewhere, flow_packets);
	__sync_fetch_and_add(&flow->bytes, amount.bytes);
	flow->last_seen_ns = now_ns;
	if (!is_anchor)
		data_left(slot, now_ns);
	skb->mark = mark;
	return send_to(slot, to.ifindex);
}

static __always_inline void begin_probe(struct probe_packet *packet, const struct probe_order *order,
					const struct path_config *path, __u8 type)
{
	packet->header.version_type = HEADER_VERSION << 4 | type;
	packet->header.index = path->tx_index;
	packet->header.cookie = path->tx_cookie;
	packet->header.k = order->k;
	packet->probe = order->probe;
}

static __always_inline int complete_request(struct probe_packet *packet,
					    const struct probe_order *order,
					    const struct path_config *path,
					    struct path_state *state)
{
	struct host_state *host = host_of(order->slot);
	__u64 now_ns = bpf_ktime_get_ns();

	if (!host || is_anchor)
		return -1;
	begin_probe(packet, order, path, TYPE_REQUEST);
	measure_sending(state, host, path, now_ns, 0);
	packet->header.flags = order->question ? FLAG_QUESTION : 0;
	if (number_request(packet, path, state, host, now_ns, packet_count(&packet->header)))
		packet->header.flags |= FLAG_REPORT;
	packet->header.age = order->age;
	host->grid_ns = now_ns;
	host->watch_ns = 0;
	return 0;
}

/* Completes a response that could not be sent when its request arrived, or that found no ride. */
static __always_inline int complete_response(struct probe_packet *packet,
					     const struct probe_order *order,
					     const struct path_config *path,
					     struct path_state *state)
{
	__u64 received_ns = order->held_since * 1000ULL;
	__u32 guard;

	begin_probe(packet, order, path, TYPE_RESPONSE);
	if (order->swept) {
		guard = read_held(state, packet, &received_ns);
		if (!guard || (__s64)(bpf_ktime_get_ns() - received_ns) <
				      (__s64)longest_wait(path, state->newest) * 1000 ||
		    !take_read(state, guard))
			return -1;
	}
	finish_response(packet, path, state, received_ns);
	return 0;
}

/* Completes an unsolicited response. */
static __always_inline int complete_unsolicited(struct probe_packet *packet,
						const struct probe_order *order,
						const struct path_config *path,
						struct path_state *state)
{
	__u32 now = stamp_us(bpf_ktime_get_ns());

	begin_probe(packet, order, path, TYPE_RESPONSE);
	packet->header.flags = FLAG_UNSOLICITED;
	packet->probe.t_sc = bpf_htonl(state->t_sc);
	packet->probe.sc = bpf_htonl(state->up.sent);
	packet->probe.t_ss = bpf_htonl(now);
	packet->probe.dt = bpf_htonl(now - stamp_us(state->received_ns));
	packet->probe.ss = bpf_htonl(__sync_fetch_and_add(&state->tx_packets, 1) + 1);
	packet->probe.r = bpf_htonl(state->rx_packets);
	packet->probe.heard = bpf_htons(path->heard);
	return 0;
}

static __always_inline __u16 udp_checksum(const struct outer_ends *to, struct udphdr *udp,
					  struct probe_packet *packet)
{
	__u64 sum = pseudo_sum(to->local, to->remote, udp->len);

	sum += udp->source + (__u64)udp->dest + udp->len;
	sum += (__u32)bpf_csum_diff(0, 0, (void *)packet, sizeof(*packet), 0);
	return udp_check(sum);
}

/* `len` is the length of the UDP payload: the packet, and zeros after it. */
static __always_inline int probe_v4(struct __sk_buff *skb, const struct outer_ends *to,
				    struct probe_packet *packet, __u8 tos, __u32 len)
{
	struct outer_v4 outer ALIGNED = {};
	__u16 ethertype = bpf_htons(ETH_P_IP);
	const __u32 extra = offsetof(struct outer_v4, header);

	fill_v4(&outer.ip, &outer.udp, to, tos, len);
	outer.udp.check = udp_checksum(to, &outer.udp, packet);
	return bpf_skb_change_head(skb, ETH_HLEN + extra, 0) ||
	       bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, 2, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN, &outer, extra, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + extra, packet, sizeof(*packet), 0) ||
	       (len > sizeof(*packet) && bpf_skb_change_tail(skb, ETH_HLEN + extra + len, 0));
}

static __always_inline int probe_v6(struct __sk_buff *skb, const struct outer_ends *to,
				    struct probe_packet *packet, __u8 tos, __u32 len)
{
	struct outer_v6 outer ALIGNED = {};
	__u16 ethertype = bpf_htons(ETH_P_IPV6);
	const __u32 extra = offsetof(struct outer_v6, header);

	fill_v6(&outer.ip, &outer.udp, to, tos, len);
	outer.udp.check = udp_checksum(to, &outer.udp, packet);
	return bpf_skb_change_head(skb, ETH_HLEN + extra, 0) ||
	       bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype, 2, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN, &outer, extra, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + extra, packet, sizeof(*packet), 0) ||
	       (len > sizeof(*packet) && bpf_skb_change_tail(skb, ETH_HLEN + extra + len, 0));
}

static __always_inline int send_probe(struct __sk_buff *skb)
{
	struct probe_packet packet = {};
	struct probe_order order;
	struct path_config *path;
	struct path_state *state;
	struct outer_ends to;
	__u32 len = sizeof(packet);
	int failed;

	if (skb->len != sizeof(order) || bpf_skb_load_bytes(skb, 0, &order, sizeof(order)))
		return drop(DROP_ENCAPSULATION);
	path = path_of(order.slot);
	state = state_of(order.slot);
	if (!path || !state)
		return drop(DROP_NO_REMOTE);
	if (ends_of(order.slot, state, &to) ||
	    skb->protocol != (to.family == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6)))
		return drop(DROP_NO_REMOTE);
	if (order.kind == KIND_SIZE) {
		begin_probe(&packet, &order, path, TYPE_SIZE);
		len = bpf_ntohl(order.probe.t_sc) >> 16;
	} else if (order.kind == KIND_RESPONSE) {
		if (complete_response(&packet, &order, path, state))
			return TC_ACT_SHOT; /* it has left on a data packet */
	} else if (order.kind == KIND_REQUEST ? complete_request(&packet, &order, path, state)
					      : complete_unsolicited(&packet, &order, path, state)) {
		return drop(DROP_NO_REMOTE);
	}
	packet.mac = probe_mac(&packet, path->key0, path->key1);
	failed = to.family == 4 ? probe_v4(skb, &to, &packet, order.tos, len)
				 : probe_v6(skb, &to, &packet, order.tos, len);
	if (failed)
		return drop(DROP_ENCAPSULATION);
	if (order.kind != KIND_SIZE) /* a size test has no stamps */
		mark_probe(skb, order.slot, sizeof(packet));
	skb->mark = mark;
	return send_to(order.slot, to.ifindex);
}

SEC("tc")
int segue_egress(struct __sk_buff *skb)
{
	__u64 now_ns = bpf_ktime_get_coarse_ns();
	__u32 from = skb->mark;

	if (daemon_is_gone(now_ns))
		return from >= MARK_PROBE && from <= MARK_OVER ? TC_ACT_SHOT : PASS;
	if (from == MARK_PROBE)
		return send_probe(skb);
	return send_data(skb, now_ns, from == MARK_AGAIN || from == MARK_OVER, from == MARK_OVER);
}
