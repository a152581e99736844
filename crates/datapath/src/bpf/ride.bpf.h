/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Departing probes that ride on data packets. */
#ifndef SEGUE_RIDE_H
#define SEGUE_RIDE_H

#include "held.bpf.h"
#include "pace.bpf.h"
#include "watch.bpf.h"

#define NO_RIDE 2
#define RIDE_FLAGS                                                                                 \
	(BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2(sizeof(struct probe_packet)) |      \
	 BPF_F_ADJ_ROOM_FIXED_GSO)

/* The headers before a ride, without a frame header. */
struct ride_v4 {
	struct iphdr ip;
	struct udphdr udp;
} __attribute__((packed));

struct ride_v6 {
	struct ipv6hdr ip;
	struct udphdr udp;
} __attribute__((packed));

/* Replaces the echo with a report if the path's mode calls for one; true if so. In `reports` mode the
 * report holds the averages, once the first loss interval has ended; in `round_trip_loss` mode it holds the
 * loss of each interval once. */
static __always_inline int put_report(struct probe_data *probe, const struct path_config *path,
				      const struct path_state *state, struct host_state *host)
{
	__u32 unreported = 0, rtt_us = 0;

	if (mode_of(path) == MODE_REPORTS && host->known & KNOWN_UP_AVERAGE) {
		if (state->known & KNOWN_RTT) {
			rtt_us = (state->rtt[0] + (1ULL << 31)) >> 32;
			rtt_us = rtt_us ? rtt_us : 1; /* 0 would mean no RTT */
		}
		probe->ss = bpf_htonl(host->round_trip.average[0]);
		probe->r = bpf_htonl(rtt_us);
		return 1;
	}
	if (mode_of(path) == MODE_ROUND_TRIP_LOSS && host->unreported)
		unreported = __sync_lock_test_and_set(&host->unreported, 0);
	if (!unreported)
		return 0;
	probe->ss = bpf_htonl(unreported - 1);
	probe->r = 0;
	return 1;
}

/* Numbers, counts and stamps a request just before it leaves, and fills in the echo of the last response;
 * true if a report replaces the echo. `counted` is how much the request adds to the packets sent. */
static __always_inline int number_request(struct probe_packet *packet,
					  const struct path_config *path, struct path_state *state,
					  struct host_state *host, __u64 now_ns,
					  __u32 counted)
{
	__u32 now = stamp_us(now_ns);

	packet->probe.seq = bpf_htonl(__sync_fetch_and_add(&host->sent_seq, 1) + 1);
	packet->probe.t_sc = bpf_htonl(now);
	packet->probe.sc = bpf_htonl(__sync_fetch_and_add(&state->tx_packets, counted) + counted);
	packet->probe.t_ss = bpf_htonl(host->echo_t_ss);
	packet->probe.dt = host->echo_t_ss ? bpf_htonl(now - host->held_since) : 0;
	packet->probe.ss = bpf_htonl(host->echo_ss);
	packet->probe.r = bpf_htonl(host->echo_r);
	host->sent_ns = now_ns;
	__sync_fetch_and_add(&host->sent, 1);
	return put_report(&packet->probe, path, state, host);
}

/* Counts and stamps a response just before it leaves. */
static __always_inline void finish_response(struct probe_packet *packet,
					    const struct path_config *path,
					    struct path_state *state, __u64 received_ns)
{
	__u32 now = stamp_us(bpf_ktime_get_ns());

	packet->probe.t_ss = bpf_htonl(now);
	packet->probe.dt = bpf_htonl(now - stamp_us(received_ns));
	packet->probe.ss = bpf_htonl(__sync_fetch_and_add(&state->tx_packets, 1) + 1);
	packet->probe.heard = bpf_htons(path->heard);
}

/* True if a departing packet should carry a request. If two packets leave on two processors, one wins:
 * there is one ride per step of the grid. */
static __always_inline int claim_request(__u32 slot, const struct path_config *path,
					 const struct path_state *state, struct host_state *host,
					 __u64 now_ns)
{
	__u64 t_ka_ns = path->t_ka_us * 1000ULL, grid = host->grid_ns, rode = host->rode_ns, step;

	if (!grid || !t_ka_ns || now_ns < grid)
		return 0;
	step = now_ns - (now_ns - grid) % t_ka_ns;
	if (rode >= step || __sync_val_compare_and_swap(&host->rode_ns, rode, now_ns) != rode)
		return 0;
	watch_rides(slot, path, state, host, step, now_ns);
	return 1;
}

static __always_inline void begin_ride(struct probe_packet *packet, const struct path_config *path,
				       __u8 flags)
{
	packet->header.version_type = HEADER_VERSION << 4 | TYPE_RIDE;
	packet->header.flags = flags; /* FLAG_RIDE_ONE_WAY has the same meaning as in data */
	packet->header.index = path->tx_index;
	packet->header.cookie = path->tx_cookie;
}

static __always_inline void fill_request(struct probe_packet *packet,
					 const struct path_config *path, struct path_state *state,
					 struct host_state *host, __u64 now_ns)
{
	packet->header.k = path->k;
	packet->probe.heard = bpf_htons(path->heard);
	packet->probe.t_ka_ms = bpf_htons((path->t_ka_us + 999) / 1000);
	if (number_request(packet, path, state, host, now_ns, 1))
		packet->header.flags |= FLAG_RIDE_REPORT;
	__sync_fetch_and_add(&host->rode, 1);
}

/* Prepends headers, probe and authenticator: 0, 1 (unchanged) or -1 (unusable). */
static __always_inline int push_ride(struct __sk_buff *skb, const struct outer_ends *to, __u8 tos,
				     __u32 len, struct probe_packet *packet)
{
	if (to->family == 4) {
		struct ride_v4 outer ALIGNED = {};

		fill_v4(&outer.ip, &outer.udp, to, tos, len + sizeof(*packet));
		if (bpf_skb_store_bytes(skb, 0, &outer, sizeof(outer), 0) ||
		    bpf_skb_store_bytes(skb, sizeof(outer), packet, sizeof(*packet), 0))
			return -1;
		return push_ethernet(skb, bpf_htons(ETH_P_IP)) ? -1 : 0;
	} else {
		struct ride_v6 outer ALIGNED = {};

		fill_v6(&outer.ip, &outer.udp, to, tos, len + sizeof(*packet));
		if (bpf_skb_store_bytes(skb, 0, &outer, sizeof(outer), 0) ||
		    bpf_skb_store_bytes(skb, sizeof(outer), packet, sizeof(*packet), 0))
			return -1;
		return push_ethernet(skb, bpf_htons(ETH_P_IPV6)) ? -1 : 0;
	}
}

/* Makes room for everything in one step, before the inner packet: a device that computes the inner packet's
 * checksum would include a probe placed after it. */
static __always_inline int make_room(struct __sk_buff *skb, __u8 family)
{
	if (family == 4)
		return bpf_skb_adjust_room(skb, sizeof(struct ride_v4) + sizeof(struct probe_packet),
					   BPF_ADJ_ROOM_MAC,
					   RIDE_FLAGS | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4);
	return bpf_skb_adjust_room(skb, sizeof(struct ride_v6) + sizeof(struct probe_packet),
				   BPF_ADJ_ROOM_MAC, RIDE_FLAGS | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
}

/* Encapsulates a packet, with a probe in front, if a probe is due and the packet is short enough, and
 * counts it as sent: 0, 1 or -1 as for data, or NO_RIDE. `flags` are those of a data packet. */
static __noinline int ride(struct __sk_buff *skb, __u32 slot, const struct outer_ends *to, __u8 flags,
			   __u8 tos)
{
	struct path_config *path = path_of(slot);
	struct path_state *state = state_of(slot);
	struct host_state *host = 0;
	struct probe_packet packet = {};
	__u64 now_ns = bpf_ktime_get_ns(), received_ns = 0;
	__u32 len = skb->len, outer, guard;

	if (!path || !state || !to)
		return NO_RIDE;
	outer = len + sizeof(packet) + sizeof(struct udphdr) +
		(to->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	if (bpf_check_mtu(skb, to->ifindex, &outer, 0, 0))
		return NO_RIDE;
	if (is_anchor) {
		state->data_at = tick(now_ns) ?: 0xffff; /* 0: never */
		guard = read_held(state, &packet, &received_ns);
		if (!guard || !take_read(state, guard))
			return NO_RIDE;
	} else {
		host = host_of(slot);
		if (!host || !claim_request(slot, path, state, host, now_ns))
			return NO_RIDE;
	}
	if (make_room(skb, to->family)) {
		if (is_anchor)
			have_sent(slot, to->family, received_ns, &packet);
		return 1;
	}
	begin_ride(&packet, path, flags);
	if (is_anchor) {
		packet.header.flags |= FLAG_RIDE_RESPONSE;
		packet.header.age = stated_age(state, now_ns);
		__sync_fetch_and_add(&state->guard, 1U << GUARD_RODE_SHIFT);
		finish_response(&packet, path, state, received_ns);
	} else if (host) {
		fill_request(&packet, path, state, host, now_ns);
	}
	packet.mac = probe_mac(&packet, path->key0, path->key1);
	return push_ride(skb, to, tos, len, &packet);
}

#endif
