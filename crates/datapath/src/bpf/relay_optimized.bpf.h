/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Route optimization (RFC 6275): home addresses in a Home Address option (6.3) and a type 2 routing header (6.4), and
 * messages with these headers, which this kernel refuses before a socket can receive them. */

#define NEXT_ROUTING 43
#define NEXT_OPTIONS 60
#define NEXT_ICMPV6 58
#define NEXT_MOBILITY 135
#define HOME_ADDRESS 0xc9

/* A Destination Options header that contains only a Home Address option; the padding aligns the option (8n + 6). */
struct home_option {
	__u8 next;
	__u8 len;
	__u8 pad[4];
	__u8 type;
	__u8 option_len;
	__u32 home[4];
} __attribute__((packed));

struct routing_2 {
	__u8 next;
	__u8 len;
	__u8 type;
	__u8 left;
	__u32 reserved;
	__u32 home[4];
} __attribute__((packed));

static __always_inline int is_given(const __u32 address[4])
{
	return (address[0] | address[1] | address[2] | address[3]) != 0;
}

/* 0: done; 1: unchanged, because the kernel refuses the change; -1: unusable. */
static __always_inline int put_home_away(struct __sk_buff *skb, const struct relay_tunnel *tunnel)
{
	int to_peer = is_given(tunnel->peer), from_home = is_given(tunnel->home);
	struct routing_2 routing = { .len = 2, .type = 2, .left = 1 };
	struct home_option option = {
		.len = 2, .pad = { 1, 2 }, .type = HOME_ADDRESS, .option_len = 16,
	};
	__u32 room = (to_peer + from_home) * sizeof(option), at = sizeof(struct ipv6hdr);
	struct ipv6hdr ip;

	/* With hop-by-hop options the headers would have to follow them; such packets are not supported. */
	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.version != 6 || !ip.nexthdr ||
	    (from_home && !same_address(ip.saddr.s6_addr32, tunnel->home)) ||
	    (to_peer && !same_address(ip.daddr.s6_addr32, tunnel->peer)))
		return -1;
	if (skb->len + room > 0xffff ||
	    bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_NET, BPF_F_ADJ_ROOM_FIXED_GSO))
		return 1;
	routing.next = from_home ? NEXT_OPTIONS : ip.nexthdr;
	option.next = ip.nexthdr;
	if (to_peer) {
		copy_address(routing.home, tunnel->peer);
		copy_address(ip.daddr.s6_addr32, tunnel->remote);
		if (bpf_skb_store_bytes(skb, at, &routing, sizeof(routing), 0))
			return -1;
		at += sizeof(routing);
	}
	if (from_home) {
		copy_address(option.home, tunnel->home);
		copy_address(ip.saddr.s6_addr32, tunnel->local);
		if (bpf_skb_store_bytes(skb, at, &option, sizeof(option), 0))
			return -1;
	}
	ip.nexthdr = to_peer ? NEXT_ROUTING : NEXT_OPTIONS;
	ip.payload_len = bpf_htons(bpf_ntohs(ip.payload_len) + room);
	if (bpf_skb_store_bytes(skb, 0, &ip, sizeof(ip), 0))
		return -1;
	return push_ethernet(skb, bpf_htons(ETH_P_IPV6)) ? -1 : 0;
}

/* The home addresses of a packet. */
struct homes {
	struct relay_end end;
	__u32 len;  /* total bytes of their headers */
	__u8 next; /* protocol after them */
};

/* Reads the headers after an IPv6 header at `link`; 0 if there is a home address. `homes` must be all zero. */
static __always_inline int read_homes(struct __sk_buff *skb, __u32 link, const struct ipv6hdr *ip,
				      struct homes *homes)
{
	__u32 at = link + sizeof(*ip);
	struct routing_2 routing;
	struct home_option option;

	homes->next = ip->nexthdr;
	if (homes->next == NEXT_ROUTING) {
		if (bpf_skb_load_bytes(skb, at, &routing, sizeof(routing)) || routing.type != 2 ||
		    routing.len != 2 || routing.left != 1)
			return -1;
		copy_address(homes->end.home, routing.home);
		homes->next = routing.next;
		homes->len = sizeof(routing);
	}
	if (homes->next == NEXT_OPTIONS &&
	    !bpf_skb_load_bytes(skb, at + homes->len, &option, sizeof(option)) && option.len == 2 &&
	    option.type == HOME_ADDRESS && option.option_len == 16) {
		copy_address(homes->end.peer, option.home);
		homes->next = option.next;
		homes->len += sizeof(option);
	}
	if (!homes->len)
		return -1;
	copy_address(homes->end.local, ip->daddr.s6_addr32);
	copy_address(homes->end.remote, ip->saddr.s6_addr32);
	homes->end.form = FORM_OPTIMIZED;
	return 0;
}

/* Passes a packet to the daemon. */
static __always_inline int give_to_daemon(struct __sk_buff *skb, __u32 link)
{
	struct relay_message *message;
	__u32 len = skb->len - link;

	if (len < sizeof(struct ipv6hdr))
		return drop(DROP_TRUNCATED);
	apart(len);
	if (len > MESSAGE_MAX)
		return drop(DROP_TRUNCATED);
	message = bpf_ringbuf_reserve(&relay_messages, sizeof(*message), 0);
	if (!message)
		return drop(DROP_QUEUE_FULL);
	message->ifindex = skb->ifindex;
	message->len = len;
	if (bpf_skb_load_bytes(skb, link, message->bytes, len)) {
		bpf_ringbuf_discard(message, 0);
		return drop(DROP_TRUNCATED);
	}
	bpf_ringbuf_submit(message, 0);
	return TC_ACT_SHOT;
}

static __always_inline int is_own(const __u32 address[4])
{
	struct inner_key key;

	copy_address(key.address, address);
	return bpf_map_lookup_elem(&relay_locals, &key) != 0;
}

/* Handles a packet with a home address: data of a binding, a message for the daemon, or a packet for another node. */
static __always_inline int arrive_optimized(struct __sk_buff *skb, __u32 link)
{
	struct homes homes ALIGNED = {};
	struct inner inner ALIGNED = {};
	struct relay_tunnel *tunnel;
	struct amount amount;
	struct ipv6hdr ip;
	__u32 *slot;

	if (bpf_skb_load_bytes(skb, link, &ip, sizeof(ip)) || read_homes(skb, link, &ip, &homes) ||
	    daemon_is_gone(bpf_ktime_get_coarse_ns()))
		return PASS;
	slot = bpf_map_lookup_elem(&relay_ends, &homes.end);
	tunnel = slot ? bpf_map_lookup_elem(&relay_tunnels, slot) : 0;
	if (homes.next == NEXT_MOBILITY || !tunnel || !tunnel->family) {
		if (!is_own(homes.end.local))
			return PASS;
		if (homes.next == NEXT_MOBILITY || homes.next == NEXT_ICMPV6)
			return give_to_daemon(skb, link);
		/* The kernel answers a routing header that is not ours; the daemon answers an option without a
		 * binding. */
		if (!is_given(homes.end.peer))
			return PASS;
		count(DROP_NO_BINDING);
		return give_to_daemon(skb, link);
	}
	if (parse_inner(skb, link, skb->len - link, &inner))
		return drop(DROP_INNER_PACKET);
	amount = measure(skb, link, skb->len - link, &inner);
	if (bpf_skb_pull_data(skb, link + sizeof(ip) + homes.len))
		return drop(DROP_DECAPSULATION);
	if (is_given(homes.end.home))
		copy_address(ip.daddr.s6_addr32, homes.end.home);
	if (is_given(homes.end.peer))
		copy_address(ip.saddr.s6_addr32, homes.end.peer);
	ip.nexthdr = homes.next;
	ip.payload_len = bpf_htons(bpf_ntohs(ip.payload_len) - homes.len);
	if (bpf_skb_store_bytes(skb, link, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM) ||
	    bpf_skb_adjust_room(skb, -(int)homes.len, BPF_ADJ_ROOM_NET, BPF_F_ADJ_ROOM_FIXED_GSO))
		return drop(DROP_DECAPSULATION);
	__sync_fetch_and_add(&tunnel->received_packets, amount.packets);
	__sync_fetch_and_add(&tunnel->received_bytes, amount.bytes);
	return bpf_redirect(tun_ifindex, BPF_F_INGRESS);
}
