/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Packets that arrive through the relay's tunnels. */

#define ENCAPSULATION_LIMIT 4 /* RFC 2473, 4.1.1: a destination option that Linux adds by default */

struct arrived {
	struct relay_end end;
	__u32 link;  /* bytes of frame header */
	__u32 inner; /* offset of the inner packet */
	__u8 tos;
	__u8 family;
	__u8 next; /* protocol after the IP header */
};

/* True if a GRE header has the form that these tunnels use: no checksum, no sequence number. */
static __always_inline int read_gre(struct __sk_buff *skb, struct arrived *in)
{
	struct gre gre = {};

	if (bpf_skb_load_bytes(skb, in->inner, &gre, offsetof(struct gre, key)) ||
	    gre.flags & ~GRE_KEY ||
	    (gre.protocol != bpf_htons(ETH_P_IP) && gre.protocol != bpf_htons(ETH_P_IPV6)))
		return -1;
	in->end.form = FORM_GRE;
	in->inner += offsetof(struct gre, key);
	if (!gre.flags)
		return 0;
	if (bpf_skb_load_bytes(skb, in->inner, &in->end.key, sizeof(gre.key)))
		return -1;
	in->end.keyed = 1;
	in->inner += sizeof(gre.key);
	return 0;
}

/* Payloads other than IP are for a socket that listens on the port. */
static __always_inline int read_udp(struct __sk_buff *skb, struct arrived *in)
{
	struct udphdr udp;
	__u8 first;

	if (bpf_skb_load_bytes(skb, in->inner, &udp, sizeof(udp)) ||
	    bpf_skb_load_bytes(skb, in->inner + sizeof(udp), &first, sizeof(first)) ||
	    (first >> 4 != 4 && first >> 4 != 6))
		return -1;
	in->end.form = FORM_UDP;
	in->end.key = (__u32)udp.dest << 16 | udp.source;
	in->inner += sizeof(udp);
	return 0;
}

/* Reads the headers before the inner packet; 0 if it may belong to a tunnel. `in` must be all zero except for
 * `link`. */
static __always_inline int read_front(struct __sk_buff *skb, struct arrived *in)
{
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, in->link, &ip, sizeof(ip)) || ip.ihl != 5 ||
		    ip.frag_off & bpf_htons(FRAGMENT_MASK))
			return -1;
		map_v4(in->end.local, ip.daddr);
		map_v4(in->end.remote, ip.saddr);
		in->family = 4;
		in->tos = ip.tos;
		in->next = ip.protocol;
		in->inner = in->link + sizeof(ip);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;
		__u8 options[3];

		if (bpf_skb_load_bytes(skb, in->link, &ip, sizeof(ip)))
			return -1;
		copy_address(in->end.local, ip.daddr.s6_addr32);
		copy_address(in->end.remote, ip.saddr.s6_addr32);
		in->family = 6;
		in->tos = bpf_ntohl(*(__be32 *)&ip) >> 20 & 0xff;
		in->next = ip.nexthdr;
		in->inner = in->link + sizeof(ip);
		if (in->next == NEXT_OPTIONS &&
		    !bpf_skb_load_bytes(skb, in->inner, options, sizeof(options)) && !options[1] &&
		    options[2] == ENCAPSULATION_LIMIT) {
			in->next = options[0];
			in->inner += 8;
		}
	} else {
		return -1;
	}
	if (in->next == NEXT_GRE)
		return read_gre(skb, in);
	if (in->next == IPPROTO_UDP)
		return read_udp(skb, in);
	return in->next == NEXT_IPV4 || in->next == NEXT_IPV6 ? 0 : -1;
}

/* True if a packet may have headers with home addresses. */
static __always_inline int may_be_optimized(const struct arrived *in)
{
	return in->family == 6 && (in->next == NEXT_ROUTING || in->next == NEXT_OPTIONS);
}

/* Counts received packets of a flow that has its own binding. */
static __noinline int count_flow(const struct flow_key *arrived, const struct amount *amount)
{
	struct flow_key key = {};
	struct relay_exit *exit;

	if (!arrived || !amount)
		return 0;
	reverse(&key, arrived);
	exit = bpf_map_lookup_elem(&relay_flows, &key);
	if (!exit)
		return 0;
	__sync_fetch_and_add(&exit->received_packets, amount->packets);
	__sync_fetch_and_add(&exit->received_bytes, amount->bytes);
	return 0;
}

static __always_inline int take_out(struct __sk_buff *skb, const struct arrived *in,
				    const struct inner *inner)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	int strip = in->inner - in->link;
	__u32 head = in->inner + (inner->version == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));

	if (bpf_skb_pull_data(skb, head))
		return drop(DROP_DECAPSULATION);
	if ((in->tos & ECN_MASK) == ECN_CE && !carry_congestion(skb, in->inner, inner))
		return drop(DROP_DECAPSULATION);
	if (inner->version != in->family)
		flags |= inner->version == 4 ? DECAP_L3_IPV4 : DECAP_L3_IPV6;
	if (bpf_skb_adjust_room(skb, -strip, BPF_ADJ_ROOM_MAC, flags))
		return drop(DROP_DECAPSULATION);
	return bpf_redirect(tun_ifindex, BPF_F_INGRESS);
}

/* `link`: bytes of the frame header. */
static __always_inline int arrive(struct __sk_buff *skb, __u32 link)
{
	struct arrived in ALIGNED = { .link = link };
	struct inner inner ALIGNED = {};
	struct relay_tunnel *tunnel;
	struct amount amount;
	__u32 *slot, len;

	if (skb->pkt_type == 3 /* PACKET_OTHERHOST */)
		return PASS;
	if (read_front(skb, &in))
		return may_be_optimized(&in) ? arrive_optimized(skb, link) : PASS;
	slot = bpf_map_lookup_elem(&relay_ends, &in.end);
	if (!slot || daemon_is_gone(bpf_ktime_get_coarse_ns()))
		return PASS;
	tunnel = bpf_map_lookup_elem(&relay_tunnels, slot);
	if (!tunnel || !tunnel->family)
		return PASS;
	len = skb->len - in.inner;
	if ((__s32)len <= 0 || parse_inner(skb, in.inner, len, &inner))
		return drop(DROP_INNER_PACKET);
	/* Only UDP super-packets may consist of segments that no device has merged: see DROP_UNCUT. */
	if (skb->gso_size && in.end.form == FORM_UDP && inner.len < len)
		return drop(DROP_UNCUT);
	if (stays_here(&inner) || !may_come_from(*slot, &inner))
		return drop(DROP_INNER_SOURCE);
	amount = measure(skb, in.inner, len, &inner);
	__sync_fetch_and_add(&tunnel->received_packets, amount.packets);
	__sync_fetch_and_add(&tunnel->received_bytes, amount.bytes);
	count_flow(&inner.key, &amount);
	if (counted == COUNT_BEHIND_TUNNELS)
		count_from(&inner, amount);
	if (counted == COUNT_AT_LINKS)
		count_to(&inner, amount);
	return take_out(skb, &in, &inner);
}

SEC("tc")
int relay_ingress(struct __sk_buff *skb)
{
	return arrive(skb, ETH_HLEN);
}

SEC("tc")
int relay_bare(struct __sk_buff *skb)
{
	return arrive(skb, 0);
}
