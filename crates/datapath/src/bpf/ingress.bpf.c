/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* TC ingress of an access interface: decapsulates tunnel packets to the TUN device, and turns requests into
 * responses. There is one program for interfaces with Ethernet frames and one for those without. */
#include "arrive.bpf.h"
#include "congestion.bpf.h"
#include "parse.bpf.h"

/* The programs that answer STAMP after these, without and with a frame header. A tail call gives them their
 * own stack, and adds no cost to tunnel packets. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, int(struct __sk_buff *));
} segue_reflectors SEC(".maps") = {
	.values = { (void *)&segue_stamp_bare, (void *)&segue_stamp },
};

/* True if an address is in one of an anchor's pools, assigned or not. */
static __always_inline int is_of_pool(const struct sign_of_life *alive, const __u32 address[4])
{
	for (int i = 0; i < POOLS; i++) {
		const struct inner_pool *pool = &alive->pools[i];

		if ((address[0] & pool->mask[0]) == pool->address[0] &&
		    (address[1] & pool->mask[1]) == pool->address[1] &&
		    (address[2] & pool->mask[2]) == pool->address[2] &&
		    (address[3] & pool->mask[3]) == pool->address[3])
			return 1;
	}
	return 0;
}

/* True if the anchor's settings permit a host to begin a flow. An unassigned address of a pool is treated like
 * another host's: a flow to it would still exist once a host gets the address. */
static __always_inline int may_begin(const struct flow_key *arrived)
{
	struct inner_owner *to = bpf_map_lookup_elem(&segue_inner, arrived->dst);
	__u32 zero = 0;
	struct sign_of_life *alive = bpf_map_lookup_elem(&segue_alive, &zero);
	__u64 asked = DENY_ANCHOR;

	if (!alive)
		return 0;
	if (to ? to->owner : is_of_pool(alive, arrived->dst))
		asked = DENY_HOSTS;
	else if (!to)
		asked = DENY_ROUTED;
	else if (arrived->protocol == IPPROTO_ICMP || arrived->protocol == IPPROTO_ICMPV6)
		asked = DENY_PING;
	return !(alive->denied & asked);
}

/* True if another flow from this address is within its share, which keeps one host from pushing the flows of
 * others out of the table. */
static __always_inline int has_share(struct inner_owner *from, __u64 now_ns)
{
	__u64 paid_ns = from->paid_ns;

	if ((__s64)(paid_ns - now_ns) < 0 &&
	    __sync_val_compare_and_swap(&from->paid_ns, paid_ns, now_ns + FLOW_PACE_NS) == paid_ns)
		return 1;
	paid_ns = from->paid_ns;
	if ((__s64)(paid_ns - now_ns) > (__s64)FLOWS_AT_ONCE * FLOW_PACE_NS)
		return 0;
	__sync_fetch_and_add(&from->paid_ns, FLOW_PACE_NS);
	return 1;
}

/* Counts received packets of a flow; `own` if they came over the path that it is bound to. */
static __always_inline void count_received(struct flow_value *flow, const struct amount *amount,
					   int own)
{
	__sync_fetch_and_add(&flow->received_packets, amount->packets);
	__sync_fetch_and_add(&flow->received_bytes, amount->bytes);
	if (!own)
		__sync_fetch_and_add(&flow->received_elsewhere, amount->packets);
}

/* Counts packets of a flow (host). */
static __noinline int count_flow(const struct flow_key *arrived, __u64 over,
				 const struct amount *amount)
{
	struct flow_key key = {};
	struct flow_value *flow;

	if (!arrived || !amount)
		return 0;
	reverse(&key, arrived);
	flow = bpf_map_lookup_elem(&segue_flows, &key);
	if (flow)
		count_received(flow, amount, *(volatile __u64 *)flow == over);
	return 0;
}

/* Binds the return direction of a flow to the path of its arrival, unless it came `one_way`, and counts its
 * packets. Returns -1, or a drop reason if the host may not begin the flow. Flows in progress, and replies,
 * have a binding already. */
static __noinline int learn_flow(const struct flow_key *arrived, struct inner_owner *from,
				 __u64 bound, const struct amount *amount, int one_way)
{
	struct flow_value fresh = {
		.slot = bound,
		.generation = bound >> 32,
		.last_seen_ns = bpf_ktime_get_coarse_ns(),
	};
	struct flow_key key = {};
	struct flow_value *flow;

	if (!arrived || !from || !amount)
		return DROP_INNER_PACKET;
	fresh.received_packets = amount->packets;
	fresh.received_bytes = amount->bytes;
	reverse(&key, arrived);
	flow = bpf_map_lookup_elem(&segue_flows, &key);
	if (!flow && !may_begin(arrived))
		return DROP_NOT_ALLOWED;
	if (flow)
		count_received(flow, amount, *(volatile __u64 *)flow == bound);
	if (one_way)
		return -1;
	if (!flow) {
		if (!has_share(from, fresh.last_seen_ns))
			return DROP_TOO_MANY_FLOWS;
		bpf_map_update_elem(&segue_flows, &key, &fresh, BPF_ANY);
		return -1;
	}
	if (*(volatile __u64 *)flow != bound) {
		*(volatile __u64 *)flow = bound;
		flow->elsewhere = flow->packets;
		flow->received_elsewhere = flow->received_packets - amount->packets;
	}
	flow->last_seen_ns = fresh.last_seen_ns;
	return -1;
}

/* True if a packet outside the tunnel has an inner address of this host as its destination or, at an anchor,
 * an address of its pools as its source: forged by a node on the link. */
static __noinline int is_past_tunnel(struct __sk_buff *skb, __u32 link)
{
	struct sign_of_life *alive;
	struct inner_key key = {};
	__u32 v4, zero = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb,
				       link + (is_anchor ? offsetof(struct iphdr, saddr)
							 : offsetof(struct iphdr, daddr)),
				       &v4, sizeof(v4)))
			return 0;
		map_v4(key.address, v4);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb,
				       link + (is_anchor ? offsetof(struct ipv6hdr, saddr)
							 : offsetof(struct ipv6hdr, daddr)),
				       &key, sizeof(key)))
			return 0;
	} else {
		return 0;
	}
	alive = bpf_map_lookup_elem(&segue_alive, &zero);
	if (!bpf_map_lookup_elem(&segue_inner, &key) &&
	    !(is_anchor && alive && is_of_pool(alive, key.address)))
		return 0;
	return !daemon_is_gone(bpf_ktime_get_coarse_ns());
}

/* Flags of a header in the lower byte, its stated age in the upper one. */
static __always_inline __u16 flags_and_age(const struct tunnel_header *header)
{
	return header->flags | header->age << 8;
}

/* Minimum interval between two reports of unsegmented packets. */
#define UNCUT_NS 10000000

/* Handles several packets that arrived as one piece and that a device should have segmented: only the first
 * could be used. */
static __noinline int uncut(__u32 slot)
{
	struct scratch *room = scratch();
	__u64 now_ns = bpf_ktime_get_coarse_ns();

	if (room && now_ns - room->uncut_ns >= UNCUT_NS) {
		room->uncut_ns = now_ns;
		tell(slot, now_ns, KIND_UNCUT);
	}
	return DROP_UNCUT;
}

/* Counts a packet of a path (for a ride, `*received` has its count) and decides whether it may enter; -1 if
 * so, otherwise a drop reason. `generation` is from the packet's own cookie, because the path may change
 * concurrently. */
static __always_inline int accept(struct __sk_buff *skb, __u32 slot, __u32 generation,
				  const struct path_config *path, struct path_state *state,
				  __u32 at, __u32 len, __u16 flags, struct inner *inner,
				  __u32 *received)
{
	struct inner_owner *owner;
	struct amount amount;

	if (parse_inner(skb, at, len, inner)) {
		*received = __sync_fetch_and_add(&state->rx_packets, 1) + 1;
		return DROP_INNER_PACKET;
	}
	if (skb->gso_size && inner->len < len) {
		*received = __sync_fetch_and_add(&state->rx_packets, skb->gso_segs) + skb->gso_segs;
		return uncut(slot);
	}
	amount = measure(skb, at, len, inner);
	*received = __sync_fetch_and_add(&state->rx_packets, amount.packets) + amount.packets;
	__sync_fetch_and_add(&state->rx_bytes, amount.bytes);
	if (is_anchor)
		state->heard_at = tick(bpf_ktime_get_coarse_ns());
	else
		data_came(slot, amount.packets, flags >> 8);
	owner = bpf_map_lookup_elem(&segue_inner, is_anchor ? inner->key.src : inner->key.dst);
	if (!owner || owner->owner != path->owner)
		return is_anchor ? DROP_INNER_SOURCE : DROP_INNER_DESTINATION;
	if (!is_anchor) {
		count_flow(&inner->key, binding(slot, generation), &amount);
		return -1;
	}
	return learn_flow(&inner->key, owner, binding(slot, generation), &amount,
			  flags & FLAG_DATA_ONE_WAY);
}

/* `front`: bytes from the tunnel header to the inner packet. */
static __always_inline int decapsulate(struct __sk_buff *skb, const struct outer *outer,
				       const struct inner *inner, __u32 front)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	int strip = outer->at + front - outer->link;
	__u32 head = outer->link + strip + (inner->version == 4 ? sizeof(struct iphdr)
							     : sizeof(struct ipv6hdr));

	if (bpf_skb_pull_data(skb, head))
		return drop(DROP_DECAPSULATION);
	if ((outer->tos & ECN_MASK) == ECN_CE &&
	    !carry_congestion(skb, outer->at + front, inner))
		return drop(DROP_DECAPSULATION);
	if (inner->version != outer->family)
		flags |= inner->version == 4 ? DECAP_L3_IPV4 : DECAP_L3_IPV6;
	if (bpf_skb_adjust_room(skb, -strip, BPF_ADJ_ROOM_MAC, flags))
		return drop(DROP_DECAPSULATION);
	return bpf_redirect(tun_ifindex, BPF_F_INGRESS);
}

/* Delivers a packet that the XDP program has checked and stripped. */
static __always_inline int deliver_stripped(struct __sk_buff *skb, __u32 slot, __u32 generation,
					    __u16 flags)
{
	struct path_config *path = path_of(slot);
	struct path_state *state = state_of(slot);
	struct scratch *room = scratch();
	__u32 received;
	int reason;

	/* The packet may have waited for GRO, and its slot may hold another path by now. */
	if (!path || !state || !room || generation_of(path->rx_cookie) != generation)
		return drop(DROP_UNKNOWN_INDEX);
	__builtin_memset(&room->inner, 0, sizeof(room->inner));
	reason = accept(skb, slot, generation, path, state, ETH_HLEN, skb->len - ETH_HLEN, flags, &room->inner,
			&received);
	if (reason >= 0)
		return drop(reason);
	return bpf_redirect(tun_ifindex, BPF_F_INGRESS);
}

static __always_inline __u8 type_of(const struct outer *outer)
{
	return outer->header.version_type & 15;
}

/* `link`: bytes of the frame header. */
static __always_inline int receive(struct __sk_buff *skb, __u32 link)
{
	struct scratch *room = scratch();
	struct outer *outer;
	struct inner *inner;
	struct path_config *path;
	struct path_state *state;
	__u32 slot, received, front = sizeof(struct tunnel_header);
	int reason;

	if (skb->pkt_type == 3 /* PACKET_OTHERHOST */ || !room)
		return PASS;
	outer = &room->outer;
	inner = &room->inner;
	__builtin_memset(outer, 0, sizeof(*outer));
	__builtin_memset(inner, 0, sizeof(*inner));
	outer->link = link;
	reason = read_outer(skb, outer);
	if (reason == NOT_OURS) {
		if (is_past_tunnel(skb, link))
			return drop(DROP_PAST_TUNNEL);
		if (stamp_port)
			bpf_tail_call(skb, &segue_reflectors, !!link);
		return PASS;
	}
	outer->local_id = local_id(outer->local);
	if (!outer->local_id)
		return is_past_tunnel(skb, link) ? drop(DROP_PAST_TUNNEL) : PASS;
	if (daemon_is_gone(bpf_ktime_get_coarse_ns()))
		return PASS;
	if (reason == TOO_SHORT)
		return drop(DROP_TRUNCATED);
	reason = check_header(&outer->header);
	if (reason >= 0)
		return drop(reason);
	slot = bpf_ntohl(outer->header.index);
	path = path_of(slot);
	state = state_of(slot);
	if (!path || !state)
		return drop(DROP_UNKNOWN_INDEX);
	if (outer->header.cookie != path->rx_cookie)
		return drop(DROP_COOKIE);
	if (type_of(outer) == TYPE_SIZE)
		return handle_size(skb, slot, outer);
	if (type_of(outer) > TYPE_RIDE)
		return handle_probe(skb, slot);
	if (type_of(outer) == TYPE_RIDE) {
		reason = read_ride(skb, outer, path, &room->packet);
		if (reason >= 0)
			return drop(reason);
		front = sizeof(room->packet);
	}
	reason = accept(skb, slot, generation_of(outer->header.cookie), path, state,
			outer->at + front, outer->payload - front, flags_and_age(&outer->header),
			inner, &received);
	if (type_of(outer) == TYPE_RIDE)
		take_ride(skb, slot, outer, &room->packet, received);
	if (reason >= 0)
		return drop(reason);
	return decapsulate(skb, outer, inner, front);
}

SEC("tc")
int segue_ingress(struct __sk_buff *skb)
{
	struct xdp_meta *meta = (void *)(long)skb->data_meta;

	if ((void *)(meta + 1) <= (void *)(long)skb->data && meta->magic == meta_magic)
		return deliver_stripped(skb, meta->slot, meta->generation, meta->flags);
	return receive(skb, ETH_HLEN);
}

SEC("tc")
int segue_bare(struct __sk_buff *skb)
{
	return receive(skb, 0);
}
