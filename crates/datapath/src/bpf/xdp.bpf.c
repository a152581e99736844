/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * XDP on an access interface. It strips the outer headers of valid data packets before the device's
 * GRO, so that GRO merges the inner segments, and stores the path in the metadata. At an anchor it
 * answers valid requests in their frames. Everything else passes unchanged: the TC program refuses,
 * counts and answers it. The TC program must be attached before this one and outlive it.
 */
#include "reflect.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DEVICES_MAX);
	__type(key, __u32);
	__type(value, struct own_device);
} segue_devices SEC(".maps");

/* True if a frame is addressed to the device itself: bridge ports and promiscuous devices also
 * receive frames for others. */
static __always_inline int is_to_device(struct xdp_md *ctx, const struct ethhdr *eth)
{
	__u32 key = ctx->ingress_ifindex % DEVICES_MAX;
	struct own_device *device = bpf_map_lookup_elem(&segue_devices, &key);
	const __u16 *to = (const void *)eth->h_dest, *own;

	if (!device || device->ifindex != ctx->ingress_ifindex)
		return 0;
	own = (const void *)device->address;
	return to[0] == own[0] && to[1] == own[1] && to[2] == own[2];
}

struct frame_v4 {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct tunnel_header header;
	__u8 inner[20];
} __attribute__((packed));

struct frame_v6 {
	struct ethhdr eth;
	struct ipv6hdr ip;
	struct udphdr udp;
	struct tunnel_header header;
	__u8 inner[20];
} __attribute__((packed));

/* Removes `strip` bytes between the frame header and the inner packet. */
static __always_inline int strip_outer(struct xdp_md *ctx, int strip, __u16 ethertype,
				       const struct ethhdr *frame,
				       const struct tunnel_header *header)
{
	struct xdp_meta *meta;
	struct ethhdr *eth;

	if (bpf_xdp_adjust_head(ctx, strip))
		return XDP_PASS;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return XDP_DROP;
	meta = (void *)(long)ctx->data_meta;
	eth = (void *)(long)ctx->data;
	if ((void *)(meta + 1) > (void *)eth || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(eth, frame, sizeof(*eth));
	eth->h_proto = ethertype;
	meta->magic = meta_magic;
	meta->slot = bpf_ntohl(header->index);
	meta->generation = generation_of(header->cookie);
	meta->flags = header->flags | header->age << 8;
	return XDP_PASS;
}

/* The inner packet's EtherType if its own header gives a length of exactly `len` bytes, otherwise
 * 0. */
static __always_inline __u16 inner_ethertype(const __u8 *inner, __u32 len)
{
	if (inner[0] >> 4 == 4)
		return (__u32)(inner[2] << 8 | inner[3]) == len ? bpf_htons(ETH_P_IP) : 0;
	if (inner[0] >> 4 == 6)
		return (__u32)(inner[4] << 8 | inner[5]) + sizeof(struct ipv6hdr) == len
			       ? bpf_htons(ETH_P_IPV6) : 0;
	return 0;
}

/* True if this is valid data of one of our paths, to a local address, while the daemon is alive. */
static __always_inline int is_data(const struct tunnel_header *header, const __u32 local[4])
{
	struct path_config *path;

	if (header->version_type != HEADER_VERSION << 4 || check_header(header) >= 0)
		return 0;
	path = path_of(bpf_ntohl(header->index));
	return path && path->rx_cookie == header->cookie && local_id(local) &&
	       !daemon_is_gone(bpf_ktime_get_coarse_ns());
}

static __always_inline int strip_if_data(struct xdp_md *ctx, const struct ethhdr *eth,
					 const struct udphdr *udp,
					 const __u32 local[4],
					 const struct tunnel_header *packed, const __u8 *inner,
					 __u32 available, int strip)
{
	struct tunnel_header header;
	struct ethhdr frame;
	__u16 ethertype;
	__u32 len = bpf_ntohs(udp->len);

	__builtin_memcpy(&header, packed, sizeof(header));
	__builtin_memcpy(&frame, eth, sizeof(frame));
	if (len != available || len < sizeof(*udp) + sizeof(header))
		return XDP_PASS;
	ethertype = inner_ethertype(inner, len - sizeof(*udp) - sizeof(header));
	if (!ethertype || !is_data(&header, local))
		return XDP_PASS;
	return strip_outer(ctx, strip, ethertype, &frame, &header);
}

SEC("xdp")
int segue_xdp(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u32 local[4];

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct frame_v4 *f = (void *)eth;

		if ((void *)(f + 1) > end || f->ip.protocol != IPPROTO_UDP || f->ip.ihl != 5 ||
		    f->udp.dest != port || f->ip.frag_off & bpf_htons(FRAGMENT_MASK) ||
		    (f->ip.tos & ECN_MASK) == ECN_CE || !is_to_device(ctx, eth))
			return XDP_PASS;
		if (is_request(f->header.version_type))
			return reflect_v4(ctx, eth);
		map_v4(local, f->ip.daddr);
		return strip_if_data(ctx, &f->eth, &f->udp, local, &f->header, f->inner,
				     bpf_ntohs(f->ip.tot_len) - sizeof(f->ip),
				     offsetof(struct frame_v4, inner) - ETH_HLEN);
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct frame_v6 *f = (void *)eth;

		if ((void *)(f + 1) > end || f->ip.nexthdr != IPPROTO_UDP || f->udp.dest != port ||
		    (f->ip.flow_lbl[0] >> 4 & ECN_MASK) == ECN_CE || !is_to_device(ctx, eth))
			return XDP_PASS;
		if (is_request(f->header.version_type))
			return reflect_v6(ctx, eth);
		copy_address(local, f->ip.daddr.s6_addr32);
		return strip_if_data(ctx, &f->eth, &f->udp, local, &f->header, f->inner,
				     bpf_ntohs(f->ip.payload_len),
				     offsetof(struct frame_v6, inner) - ETH_HLEN);
	}
	return XDP_PASS;
}
