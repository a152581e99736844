/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Packets that leave through the relay's TUN device. */

#define ALL_BITS 192 /* 64 bits before the address, and the address */
#define GRE_KEY bpf_htons(0x2000)
#define NEXT_IPV4 4
#define NEXT_IPV6 41
#define NEXT_GRE 47

static __always_inline int may_come_from(__u32 port, const struct inner *inner)
{
	struct relay_source key = { .bits = ALL_BITS, .port = port, .family = inner->version };

	copy_address(key.address, inner->key.src);
	return bpf_map_lookup_elem(&relay_sources, &key) != 0;
}

static __always_inline struct relay_exit *exit_of_prefix(__u32 direction, __u8 family,
								  const __u32 address[4])
{
	struct relay_prefix key = { .bits = ALL_BITS, .direction = direction, .family = family };

	copy_address(key.address, address);
	return bpf_map_lookup_elem(&relay_prefixes, &key);
}

static __always_inline struct relay_exit *exit_to(const struct inner *inner)
{
	return exit_of_prefix(RELAY_TO, inner->version, inner->key.dst);
}

static __always_inline struct relay_exit *exit_from(const struct inner *inner)
{
	return exit_of_prefix(RELAY_FROM, inner->version, inner->key.src);
}

/* The exit of a packet; null if it has no binding. `checked`: it came over a checked link. */
static __always_inline struct relay_exit *exit_of(const struct inner *inner, int checked)
{
	struct relay_exit *exit = bpf_map_lookup_elem(&relay_flows, &inner->key);

	if (exit)
		return exit;
	exit = checked ? exit_from(inner) : exit_to(inner);
	if (exit)
		return exit;
	return checked ? exit_to(inner) : exit_from(inner);
}

/* True if a forwarded packet may have its source. Packets from tunnels were checked on arrival. Links without sources
 * connect to the rest of the world and must not bring packets from our hosts: a source address to which a binding leads
 * is behind a tunnel or a checked link. */
static __always_inline int has_good_source(__u32 link, const struct inner *inner, int *checked)
{
	if (!link || link == tun_ifindex)
		return 1;
	*checked = bpf_map_lookup_elem(&relay_links, &link) != 0;
	if (*checked)
		return may_come_from(LINK_PORT | link, inner);
	return !exit_of_prefix(RELAY_TO, inner->version, inner->key.src) &&
	       !may_come_from(ANY_LINK, inner);
}

/* The counters of the host prefix that contains this address; null if it is not counted. */
static __always_inline struct relay_count *count_of(__u8 family, const __u32 address[4])
{
	struct relay_prefix key = { .bits = ALL_BITS, .direction = RELAY_TO, .family = family };

	copy_address(key.address, address);
	return bpf_map_lookup_elem(&relay_counts, &key);
}

static __always_inline void count_from(const struct inner *inner, struct amount amount)
{
	struct relay_count *count = count_of(inner->version, inner->key.src);

	if (!count)
		return;
	__sync_fetch_and_add(&count->from_packets, amount.packets);
	__sync_fetch_and_add(&count->from_bytes, amount.bytes);
}

static __always_inline void count_to(const struct inner *inner, struct amount amount)
{
	struct relay_count *count = count_of(inner->version, inner->key.dst);

	if (!count)
		return;
	__sync_fetch_and_add(&count->to_packets, amount.packets);
	__sync_fetch_and_add(&count->to_bytes, amount.bytes);
}

struct gre {
	__u16 flags;
	__u16 protocol;
	__u32 key; /* only with GRE_KEY */
} __attribute__((packed));

/* The headers between the outer IP header and the inner packet. */
union shim {
	struct gre gre;
	struct udphdr udp;
};

struct outer_head_v4 {
	struct iphdr ip;
	union shim shim;
} __attribute__((packed));

struct outer_head_v6 {
	struct ipv6hdr ip;
	union shim shim;
} __attribute__((packed));

/* Size of the shim in bytes. */
static __always_inline __u32 shim_of(const struct relay_tunnel *tunnel)
{
	if (tunnel->form == FORM_UDP)
		return sizeof(struct udphdr);
	if (tunnel->form == FORM_GRE)
		return tunnel->keyed ? sizeof(struct gre) : offsetof(struct gre, key);
	return 0;
}

/* Flags of adjust_room, without those of the outer family. */
static __always_inline __u64 shim_flags(const struct relay_tunnel *tunnel)
{
	if (tunnel->form == FORM_UDP)
		return BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (tunnel->form == FORM_GRE)
		return BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L4_GRE;
	return BPF_F_ADJ_ROOM_FIXED_GSO;
}

static __always_inline __u8 next_header(const struct relay_tunnel *tunnel, __u8 version)
{
	if (tunnel->form == FORM_UDP)
		return IPPROTO_UDP;
	if (tunnel->form == FORM_GRE)
		return NEXT_GRE;
	return version == 4 ? NEXT_IPV4 : NEXT_IPV6;
}

/* `len` is the length of the inner packet. UDP has no checksum: RFC 768, and RFC 6935 for tunnels over IPv6. */
static __always_inline void fill_shim(union shim *shim, const struct relay_tunnel *tunnel,
				      __u8 version, __u32 len)
{
	if (tunnel->form == FORM_UDP) {
		shim->udp.source = tunnel->local_port;
		shim->udp.dest = tunnel->remote_port;
		shim->udp.len = bpf_htons(len + sizeof(shim->udp));
		return;
	}
	shim->gre.flags = tunnel->keyed ? GRE_KEY : 0;
	shim->gre.protocol = version == 4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	shim->gre.key = tunnel->key;
}

/* Writes an IP header of `ip` bytes and a shim, and prepends a frame header; 0 or -1. */
static __always_inline int put_head(struct __sk_buff *skb, void *head, __u32 ip, __u32 shim,
				    __u16 ethertype)
{
	int failed;

	/* The verifier requires constant lengths. */
	if (shim == 8)
		failed = bpf_skb_store_bytes(skb, 0, head, ip + 8, 0);
	else if (shim == 4)
		failed = bpf_skb_store_bytes(skb, 0, head, ip + 4, 0);
	else
		failed = bpf_skb_store_bytes(skb, 0, head, ip, 0);
	return failed || push_ethernet(skb, bpf_htons(ethertype)) ? -1 : 0;
}

/* 0: encapsulated; 1: unchanged, because the kernel cannot encapsulate it; -1: unusable. */
static __always_inline int put_in_v4(struct __sk_buff *skb, const struct relay_tunnel *tunnel,
				     const struct inner *inner)
{
	struct outer_head_v4 head ALIGNED = {};
	__u32 len = skb->len, shim = shim_of(tunnel);

	if (len + sizeof(head) > 0xffff ||
	    bpf_skb_adjust_room(skb, sizeof(head.ip) + shim, BPF_ADJ_ROOM_MAC,
				shim_flags(tunnel) | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4))
		return 1;
	head.ip.version = 4;
	head.ip.ihl = 5;
	head.ip.tos = inner->tos;
	head.ip.tot_len = bpf_htons(len + shim + sizeof(head.ip));
	head.ip.frag_off = bpf_htons(0x4000);
	head.ip.ttl = TTL;
	head.ip.protocol = next_header(tunnel, inner->version);
	head.ip.saddr = tunnel->local[3];
	head.ip.daddr = tunnel->remote[3];
	head.ip.check = ipv4_checksum(&head.ip);
	fill_shim(&head.shim, tunnel, inner->version, len);
	return put_head(skb, &head, sizeof(head.ip), shim, ETH_P_IP);
}

static __always_inline int put_in_v6(struct __sk_buff *skb, const struct relay_tunnel *tunnel,
				     const struct inner *inner)
{
	struct outer_head_v6 head ALIGNED = {};
	__u32 len = skb->len, shim = shim_of(tunnel);

	if (len + sizeof(head) > 0xffff ||
	    bpf_skb_adjust_room(skb, sizeof(head.ip) + shim, BPF_ADJ_ROOM_MAC,
				shim_flags(tunnel) | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return 1;
	*(__be32 *)&head.ip = bpf_htonl(6u << 28 | (__u32)inner->tos << 20);
	head.ip.payload_len = bpf_htons(len + shim);
	head.ip.nexthdr = next_header(tunnel, inner->version);
	head.ip.hop_limit = TTL;
	copy_address(head.ip.saddr.s6_addr32, tunnel->local);
	copy_address(head.ip.daddr.s6_addr32, tunnel->remote);
	fill_shim(&head.shim, tunnel, inner->version, len);
	return put_head(skb, &head, sizeof(head.ip), shim, ETH_P_IPV6);
}

/* Sends a packet with a frame header over an interface to the next hop, which is in the last word for IPv4.
 *
 * A packet keeps the route that led it here. If it has to wait for neighbour resolution, it would leave by that route,
 * without a frame header. Attaching tunnel metadata replaces the route. For the same reason the next hop is always
 * given: a lookup could return that route again, or another interface's router. */
static __always_inline int send_over(struct __sk_buff *skb, __u32 ifindex, __u8 family,
				     const __u32 to[4])
{
	struct bpf_redir_neigh next = {};
	__u64 none = 0; /* the shortest valid key */

	if (bpf_skb_set_tunnel_key(skb, (void *)&none, sizeof(none), 0))
		return drop(DROP_ENCAPSULATION);
	if (family == 4) {
		next.nh_family = FAMILY_INET;
		next.ipv4_nh = to[3];
	} else {
		next.nh_family = FAMILY_INET6;
		copy_address(next.ipv6_nh, to);
	}
	return bpf_redirect_neigh(ifindex, &next, sizeof(next), 0);
}

/* `again`: the daemon has had this packet, so passing it on would make a loop. */
static __always_inline int into_tunnel(struct __sk_buff *skb, struct relay_tunnel *tunnel,
				       const struct inner *inner, struct amount amount, int again)
{
	int result;

	if (!tunnel || !tunnel->family || !tunnel->ifindex)
		return drop(DROP_NO_REMOTE);
	if (skb->gso_size && inner->key.protocol != PROTO_TCP)
		return again ? drop(DROP_ENCAPSULATION) : PASS;
	if (tunnel->form == FORM_OPTIMIZED)
		result = put_home_away(skb, tunnel);
	else
		result = tunnel->family == 4 ? put_in_v4(skb, tunnel, inner) : put_in_v6(skb, tunnel, inner);
	if (result > 0 && !again)
		return PASS;
	if (result)
		return drop(DROP_ENCAPSULATION);
	__sync_fetch_and_add(&tunnel->sent_packets, amount.packets);
	__sync_fetch_and_add(&tunnel->sent_bytes, amount.bytes);
	skb->mark = mark;
	return send_over(skb, tunnel->ifindex, tunnel->next_family, tunnel->next);
}

static __always_inline int out_of_link(struct __sk_buff *skb, const struct relay_exit *exit,
				       const struct inner *inner)
{
	if (push_ethernet(skb, skb->protocol))
		return drop(DROP_ENCAPSULATION);
	if (exit->next_family)
		return send_over(skb, exit->number, exit->next_family, exit->next);
	return send_over(skb, exit->number, inner->version, inner->key.dst);
}

/* The exit of a packet whose traffic is held; EXIT_HOLD if it goes to user space. During a release a packet is sent
 * directly only if user space has none of the earlier packets left. */
static __always_inline int held_exit(struct __sk_buff *skb, const struct relay_exit *exit,
				     const struct inner *inner, int again)
{
	__u32 queue = exit->queue % QUEUES, *passed, *returned;

	passed = bpf_map_lookup_elem(&relay_passed, &queue);
	returned = bpf_map_lookup_elem(&relay_returned, &queue);
	if (!passed || !returned)
		return EXIT_HOLD;
	if (again) {
		__sync_fetch_and_add(returned, 1);
		return exit->release;
	}
	if (exit->release && (__s32)(*(volatile __u32 *)passed - *(volatile __u32 *)returned) <= 0)
		return exit->release;
	/* The device segments super-packets other than TCP. */
	__sync_fetch_and_add(passed, skb->gso_segs && inner->key.protocol != PROTO_TCP ? skb->gso_segs : 1);
	return EXIT_HOLD;
}

/* True if a packet is multicast or link-local: not traffic of hosts. */
static __always_inline int stays_here(const struct inner *inner)
{
	__u32 first = bpf_ntohl(inner->key.dst[0]), v4 = bpf_ntohl(inner->key.dst[3]);

	if (inner->version == 6)
		return first >> 24 == 0xff || first >> 22 == 0xfe80 >> 6 ||
		       bpf_ntohl(inner->key.src[0]) >> 22 == 0xfe80 >> 6;
	return v4 >> 28 == 14 || v4 == 0xffffffff || v4 >> 16 == 0xa9fe;
}

SEC("tc")
int relay_egress(struct __sk_buff *skb)
{
	__u64 now_ns = bpf_ktime_get_coarse_ns();
	int again = skb->mark == MARK_AGAIN, checked = 0, kind, action;
	struct inner inner = {};
	struct relay_exit *exit;
	struct amount amount;
	__u32 slot;

	if (daemon_is_gone(now_ns))
		return again ? TC_ACT_SHOT : PASS;
	if (parse_inner(skb, 0, skb->len, &inner))
		return drop(DROP_INNER_PACKET);
	if (stays_here(&inner))
		return PASS;
	if (!again && !has_good_source(skb->ingress_ifindex, &inner, &checked))
		return drop(DROP_INNER_SOURCE);
	exit = exit_of(&inner, checked);
	if (!exit)
		return drop(DROP_NO_BINDING);
	kind = exit->kind;
	if (kind == EXIT_HOLD)
		kind = held_exit(skb, exit, &inner, again);
	if (kind == EXIT_HOLD || kind == EXIT_ASK)
		return again ? drop(DROP_NO_BINDING) : PASS;
	if (kind == EXIT_DROP)
		return drop(DROP_DENIED);
	amount = measure(skb, 0, skb->len, &inner); /* adjust_room zeroes gso_segs */
	if (kind == EXIT_LINK) {
		/* A device segments super-packets other than TCP, too. */
		if (inner.key.protocol != PROTO_TCP && skb->gso_segs)
			amount.packets = skb->gso_segs;
		action = out_of_link(skb, exit, &inner);
	} else {
		slot = exit->number;
		action = into_tunnel(skb, bpf_map_lookup_elem(&relay_tunnels, &slot), &inner, amount,
				     again);
	}
	/* Packets that go to user space first are counted when they return. */
	if (action != TC_ACT_REDIRECT)
		return action;
	__sync_fetch_and_add(&exit->packets, amount.packets);
	__sync_fetch_and_add(&exit->bytes, amount.bytes);
	exit->last_seen_ns = now_ns;
	if (counted == COUNT_BEHIND_TUNNELS && kind == EXIT_TUNNEL)
		count_to(&inner, amount);
	if (counted == COUNT_AT_LINKS && kind == EXIT_TUNNEL)
		count_from(&inner, amount);
	return action;
}
