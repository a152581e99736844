/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Sends a batch of requests of a host. The kernel runs this program on live frames
 * (BPF_PROG_TEST_RUN): each frame takes the next order, is turned into a complete request, and goes to
 * the driver of the access interface, without a socket buffer and without a queueing discipline.
 */
#include "datagram.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct batch_order);
} segue_orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct batch);
} segue_batch SEC(".maps");

/* Writes every field: a reused frame has arbitrary contents. */
static __always_inline void write_ethernet(struct ethhdr *eth, const struct batch *batch,
					   __u16 ethertype)
{
	__builtin_memcpy(eth->h_dest, batch->destination, ETH_ALEN);
	__builtin_memcpy(eth->h_source, batch->source, ETH_ALEN);
	eth->h_proto = ethertype;
}

static __always_inline void write_datagram(struct probe_datagram *datagram,
					   const struct probe_packet *packet,
					   const struct outer_ends *to)
{
	const __u64 *from = (const void *)packet;
	__u64 *word = (void *)&datagram->packet;

	for (int i = 0; i < 7; i++)
		word[i] = from[i];
	datagram->udp.check = datagram_checksum(to->local, to->remote, datagram);
}

static __always_inline int write_v4(struct xdp_md *ctx, const struct batch *batch,
				    const struct outer_ends *to, const struct probe_packet *packet)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct probe_datagram *datagram = (void *)(ip + 1);

	if ((void *)(datagram + 1) > (void *)(long)ctx->data_end)
		return -1;
	write_ethernet(eth, batch, bpf_htons(ETH_P_IP));
	ip->id = 0;
	ip->check = 0;
	fill_v4(ip, &datagram->udp, to, 0, sizeof(*packet));
	write_datagram(datagram, packet, to);
	return 0;
}

static __always_inline int write_v6(struct xdp_md *ctx, const struct batch *batch,
				    const struct outer_ends *to, const struct probe_packet *packet)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct probe_datagram *datagram = (void *)(ip + 1);

	if ((void *)(datagram + 1) > (void *)(long)ctx->data_end)
		return -1;
	write_ethernet(eth, batch, bpf_htons(ETH_P_IPV6));
	fill_v6(ip, &datagram->udp, to, 0, sizeof(*packet));
	write_datagram(datagram, packet, to);
	return 0;
}

#define TOUCH(field) ((void)*(const volatile typeof(field) *)&(field))

/* Prefetches the data of the next order. With many paths nothing is in the cache, and each atomic
 * operation would wait for a cache line of its own; this fetches them together while the authenticator
 * is computed. */
static __always_inline void fetch(__u32 at)
{
	struct batch_order *order = bpf_map_lookup_elem(&segue_orders, &at);
	struct path_config *path;
	struct path_state *state;
	struct host_state *host;
	struct host_route *route;
	__u32 slot;

	if (!order)
		return;
	slot = order->slot;
	path = bpf_map_lookup_elem(&segue_paths, &slot);
	state = state_of(slot);
	host = host_of(slot);
	route = bpf_map_lookup_elem(&segue_routes, &slot);
	if (!path || !state || !host || !route)
		return;
	TOUCH(state->tx_packets);
	TOUCH(host->echo_t_ss);
	TOUCH(host->sent);
	TOUCH(path->owner);
	TOUCH(path->scale);
	TOUCH(route->endpoint.local);
}

/* Turns the frame into the request of an order and returns the interface to send it over, or 0 on
 * failure. `next` is the index of the next order. */
static __always_inline __u32 write_request(struct xdp_md *ctx, const struct batch *batch,
					   const struct batch_order *ordered, __u32 next)
{
	struct probe_order order = {
		.slot = ordered->slot,
		.k = ordered->k,
		.age = ordered->age,
		.question = ordered->question,
		.probe = {
			.heard = bpf_htons(ordered->heard),
			.t_ka_ms = bpf_htons(ordered->t_ka_ms),
		},
	};
	struct path_config *path = path_of(order.slot);
	struct path_state *state = state_of(order.slot);
	struct probe_packet packet = {};
	struct outer_ends to;

	if (!path || !state || ends_of(order.slot, state, &to) ||
	    complete_request(&packet, &order, path, state))
		return 0;
	fetch(next);
	packet.mac = probe_mac(&packet, path->key0, path->key1);
	if (to.family == 4 ? write_v4(ctx, batch, &to, &packet) : write_v6(ctx, batch, &to, &packet))
		return 0;
	return to.ifindex;
}

SEC("xdp")
int segue_send(struct xdp_md *ctx)
{
	struct batch_order *order;
	struct batch *batch;
	__u32 key = 0, ifindex;

	batch = bpf_map_lookup_elem(&segue_batch, &key);
	if (!batch || batch->next >= batch->orders)
		return XDP_DROP;
	key = batch->next++;
	order = bpf_map_lookup_elem(&segue_orders, &key);
	if (!order)
		return XDP_DROP;
	ifindex = write_request(ctx, batch, order, key + 1);
	if (ifindex)
		return bpf_redirect(ifindex, 0);
	count(DROP_NO_REMOTE);
	return XDP_DROP;
}
