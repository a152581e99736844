/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Both ends of the bench's wire: the sink for answers at the generator's end, the simplest receivers at
 * the responder's end (a drop, a bare reflector, a redirect to an AF_XDP socket), and the generator of
 * raw frames.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "probe.bpf.h"

const volatile __u16 request_port = 0; /* network order */
const volatile __u16 answer_port = 0;  /* network order */
const volatile __u32 near_ifindex = 0;
const volatile __u32 own_tgid = 0;
const volatile __u32 path_mask = 0;    /* paths of the raw generator, a power of two, less one */

struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
} __attribute__((packed));

struct bench_counts {
	__u64 answers; /* arrived at the generator's end */
	__u64 dropped; /* by the drop at the responder's end */
	__u64 raw;     /* frames made by the raw generator */
	__u64 swallow; /* answers end here; otherwise they continue to the generator's socket */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_counts);
} bench_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} bench_sockets SEC(".maps");

struct raw_path {
	__u64 key0;
	__u64 key1;
	__u64 cookie; /* network order */
	__u32 seq;
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct raw_path);
} bench_paths SEC(".maps");

/* Ethernet, IP and UDP header of a raw frame (42 bytes), padded to whole words. */
struct raw_headers {
	__u64 words[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct raw_headers);
} bench_headers SEC(".maps");

/* Time that this process has spent on receiving. */
struct receiving {
	__u64 began_ns; /* 0: not receiving */
	__u64 spent_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receiving);
} bench_receiving SEC(".maps");

static __always_inline struct bench_counts *counts(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&bench_counts, &zero);
}

/* Parses the headers of a UDP datagram to port `to`; null for other packets. */
static __always_inline struct frame *datagram(void *data, void *end, __u16 to)
{
	struct frame *f = data;

	if ((void *)(f + 1) > end || f->eth.h_proto != bpf_htons(ETH_P_IP) ||
	    f->ip.ihl != 5 || f->ip.protocol != IPPROTO_UDP || f->udp.dest != to)
		return 0;
	return f;
}

/* Counts an answer; returns whether it ends here. */
static __always_inline int take(void *data, void *end)
{
	struct bench_counts *c = counts();

	if (!c || !datagram(data, end, answer_port))
		return 0;
	__sync_fetch_and_add(&c->answers, 1);
	return c->swallow != 0;
}

static __always_inline int refuse(void *data, void *end)
{
	struct bench_counts *c = counts();

	if (!c || !datagram(data, end, request_port))
		return 0;
	__sync_fetch_and_add(&c->dropped, 1);
	return 1;
}

SEC("xdp")
int bench_sink_xdp(struct xdp_md *ctx)
{
	return take((void *)(long)ctx->data, (void *)(long)ctx->data_end) ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int bench_sink_tc(struct __sk_buff *skb)
{
	return take((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

SEC("xdp")
int bench_drop_xdp(struct xdp_md *ctx)
{
	return refuse((void *)(long)ctx->data, (void *)(long)ctx->data_end) ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int bench_drop_tc(struct __sk_buff *skb)
{
	return refuse((void *)(long)skb->data, (void *)(long)skb->data_end) ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* Returns the request with source and destination swapped, otherwise unchanged and unparsed. */
SEC("xdp")
int bench_reflect(struct xdp_md *ctx)
{
	struct frame *f = datagram((void *)(long)ctx->data, (void *)(long)ctx->data_end, request_port);
	__u8 mac[ETH_ALEN];
	__u32 address;
	__u16 port;

	if (!f)
		return XDP_PASS;
	__builtin_memcpy(mac, f->eth.h_source, ETH_ALEN);
	__builtin_memcpy(f->eth.h_source, f->eth.h_dest, ETH_ALEN);
	__builtin_memcpy(f->eth.h_dest, mac, ETH_ALEN);
	address = f->ip.saddr;
	f->ip.saddr = f->ip.daddr;
	f->ip.daddr = address;
	port = f->udp.source;
	f->udp.source = f->udp.dest;
	f->udp.dest = port;
	return XDP_TX;
}

SEC("xdp")
int bench_to_socket(struct xdp_md *ctx)
{
	if (!datagram((void *)(long)ctx->data, (void *)(long)ctx->data_end, request_port))
		return XDP_PASS;
	return bpf_redirect_map(&bench_sockets, ctx->rx_queue_index, XDP_PASS);
}

#define NET_RX_SOFTIRQ 3

static __always_inline struct receiving *receiving(const struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0;

	if (ctx->args[0] != NET_RX_SOFTIRQ || bpf_get_current_pid_tgid() >> 32 != own_tgid)
		return 0;
	return bpf_map_lookup_elem(&bench_receiving, &zero);
}

/* Cost of this process's packets at the other end of the virtual wire, which its softirqs bear. */
SEC("raw_tp/softirq_entry")
int bench_receive_begins(struct bpf_raw_tracepoint_args *ctx)
{
	struct receiving *r = receiving(ctx);

	if (r)
		r->began_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp/softirq_exit")
int bench_receive_ends(struct bpf_raw_tracepoint_args *ctx)
{
	struct receiving *r = receiving(ctx);

	if (r && r->began_ns) {
		r->spent_ns += bpf_ktime_get_ns() - r->began_ns;
		r->began_ns = 0;
	}
	return 0;
}

struct raw_frame {
	struct frame headers;
	struct probe_packet packet;
} __attribute__((packed));

/*
 * Runs on live frames of BPF_PROG_TEST_RUN: turns each one into the next path's next request and sends it.
 * The kernel recycles pages in the state in which the responder left them, so this writes the whole frame.
 */
SEC("xdp")
int bench_generate(struct xdp_md *ctx)
{
	struct raw_frame *f = (void *)(long)ctx->data;
	struct bench_counts *c = counts();
	struct probe_packet packet = {};
	struct raw_headers *headers;
	struct raw_path *path;
	__u32 slot, now, zero = 0;

	if (!c || (void *)(f + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	slot = __sync_fetch_and_add(&c->raw, 1) & path_mask;
	path = bpf_map_lookup_elem(&bench_paths, &slot);
	headers = bpf_map_lookup_elem(&bench_headers, &zero);
	if (!path || !headers)
		return XDP_DROP;
	now = stamp_us(bpf_ktime_get_ns());
	path->seq++;
	packet.header.version_type = HEADER_VERSION << 4 | TYPE_REQUEST;
	packet.header.k = 3;
	packet.header.index = bpf_htonl(slot);
	packet.header.cookie = path->cookie;
	packet.probe.seq = bpf_htonl(path->seq);
	packet.probe.t_sc = bpf_htonl(now);
	/* Echo of an answer that took 60 us in transit and was held for 40 us. */
	packet.probe.t_ss = bpf_htonl(now - 100);
	packet.probe.dt = bpf_htonl(40);
	packet.probe.sc = bpf_htonl(path->seq);
	packet.probe.ss = bpf_htonl(path->seq - 1);
	packet.probe.r = bpf_htonl(path->seq - 1);
	packet.probe.heard = bpf_htons(1);
	packet.probe.t_ka_ms = bpf_htons(500);
	packet.mac = probe_mac(&packet, path->key0, path->key1);
#pragma unroll
	for (int i = 0; i < 5; i++)
		((__u64 *)f)[i] = headers->words[i];
	((__u16 *)f)[20] = (__u16)headers->words[5];
#pragma unroll
	for (int i = 0; i < 7; i++)
		((__u64 *)&f->packet)[i] = ((__u64 *)&packet)[i];
	return bpf_redirect(near_ifindex, 0);
}

_Static_assert(sizeof(struct frame) == 42, "headers of a frame");

char _license[] SEC("license") = "Dual MIT/GPL";
