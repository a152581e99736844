/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Arriving probes: updates the state of the path and reports news to the daemon. */
#ifndef SEGUE_ARRIVE_H
#define SEGUE_ARRIVE_H

#include "answer.bpf.h"
#include "held.bpf.h"
#include "pace.bpf.h"
#include "parse.bpf.h"
#include "scratch.bpf.h"
#include "source.bpf.h"

#define WINDOW 64

/* The value of `newest` after a probe with number `seq`. */
static __always_inline __u64 newest_after(__u64 last, __u32 seq, const struct probe_packet *packet)
{
	__u64 run = last >> NEWEST_RUN_SHIFT & RUN_MAX;

	if (!(last & NEWEST_SEEN) || seq != (__u32)last + 1)
		run = 1;
	else if (run < RUN_MAX)
		run += 1;
	return NEWEST_SEEN | run << NEWEST_RUN_SHIFT | (__u64)packet->header.k << NEWEST_K_SHIFT |
	       (__u64)bpf_ntohs(packet->probe.t_ka_ms) << NEWEST_T_KA_SHIFT | seq;
}

/* Records a sequence number; false if it is not newer than the last. If two copies arrive on two
 * processors, one wins. `*last` receives the previous value. */
static __always_inline int is_newer(__u64 *newest, __u32 seq, const struct probe_packet *packet,
				    __u64 *last)
{
	*last = *newest;
	if (*last & NEWEST_SEEN && (__s32)(seq - (__u32)*last) <= 0)
		return 0;
	return __sync_val_compare_and_swap(newest, *last, newest_after(*last, seq, packet)) == *last;
}

/* Records a response's number. Each number counts once; a late one only if it is less than 64 behind
 * the newest. Returns 0 for the newest, 1 for a late one, -1 if the response must not count. */
static __always_inline int place_response(struct path_state *state, struct host_state *host,
					  __u32 seq, const struct probe_packet *packet, __u64 *last)
{
	__u64 window = host->responses, shifted;
	__u32 behind;

	*last = state->newest;
	if (host->sent_seq - seq >= host->sent_seq)
		return -1; /* never sent */
	behind = (__u32)*last - seq;
	if (*last & NEWEST_SEEN && (__s32)behind >= 0) {
		if (behind >= WINDOW) {
			__sync_fetch_and_add(&host->reordered, 1);
			return -1;
		}
		shifted = window | 1ULL << (behind & 63);
		if (shifted == window ||
		    __sync_val_compare_and_swap(&host->responses, window, shifted) != window) {
			__sync_fetch_and_add(&host->duplicates, 1);
			return -1;
		}
		__sync_fetch_and_add(&host->reordered, 1);
		return 1;
	}
	behind = -behind;
	shifted = *last & NEWEST_SEEN && behind < WINDOW ? window << (behind & 63) | 1 : 1;
	if (__sync_val_compare_and_swap(&host->responses, window, shifted) != window)
		return -1;
	state->newest = newest_after(*last, seq, packet);
	return 0;
}

static __always_inline void report(__u32 slot, __u8 kind, __u8 wants, __u64 at_ns, __u32 received,
				   const struct outer *outer, const struct probe_packet *packet)
{
	struct scratch *room = scratch();
	struct probe_event *event;

	if (!room)
		return;
	event = &room->event;
	__builtin_memset(event, 0, sizeof(*event));
	event->at_ns = at_ns;
	event->slot = slot;
	event->received = received;
	event->remote_port = outer->remote_port;
	event->kind = kind;
	event->k = packet->header.k;
	event->family = outer->family;
	event->flags = packet->header.flags;
	if ((packet->header.version_type & 15) == TYPE_RIDE)
		event->flags = packet->header.flags & FLAG_RIDE_REPORT ? FLAG_REPORT : 0;
	else if (kind == KIND_REQUEST)
		event->age = packet->header.age;
	event->wants = wants;
	event->probe = packet->probe;
	copy_address(event->remote, outer->remote);
	if (bpf_ringbuf_output(&segue_events, event, sizeof(*event), 0))
		count(DROP_QUEUE_FULL);
}

/* True if the peer reports a change: of the paths it hears, of K or of T_KA. */
static __always_inline int says_new(struct path_state *state, __u64 last, __u64 now, __u16 heard)
{
	const __u64 stated = 0xffULL << NEWEST_K_SHIFT | 0xffffULL << NEWEST_T_KA_SHIFT;
	int new = state->heard != heard || ((last ^ now) & stated);

	state->heard = heard;
	return new;
}

static __always_inline __u8 report_flag(const struct tunnel_header *header)
{
	return (header->version_type & 15) == TYPE_RIDE ? FLAG_RIDE_REPORT : FLAG_REPORT;
}

/* Takes over the client's averages instead of computing them. */
static __always_inline void adopt(struct path_state *state, __u32 loss, __u32 rtt_us)
{
	state->up.average[0] = loss;
	state->up.average[1] = loss;
	state->known |= KNOWN_UP_AVERAGE;
	if (!rtt_us || rtt_us > MAX_RTT_US)
		return;
	state->rtt[0] = (__u64)rtt_us << 32;
	state->rtt[1] = state->rtt[0];
	state->known |= KNOWN_RTT;
}

/* The server's sample, from the values that a request echoes. */
static __always_inline void measure_request(struct path_state *state,
					    const struct path_config *path, __u64 at_ns,
					    __u32 received, const struct probe_packet *packet)
{
	const struct probe_data *probe = &packet->probe;
	__u32 scale_id = path->scale & SCALE_MASK;
	struct scale *scale = bpf_map_lookup_elem(&segue_scales, &scale_id);
	struct pace pace = pace_of(path, state->newest);
	struct sample sample = {
		.at_ns = at_ns,
		.stamp = bpf_ntohl(probe->t_ss),
		.dt = bpf_ntohl(probe->dt),
		.up_sent = bpf_ntohl(probe->sc),
		.up_received = received,
		.down_sent = bpf_ntohl(probe->ss),
		.down_received = bpf_ntohl(probe->r),
		.down_us = bpf_ntohl(probe->t_ss),
		.echoed = 1,
		.question = is_question(&packet->header),
	};
	int reports = !!(packet->header.flags & report_flag(&packet->header));
	__u8 mode = mode_of(path);

	if (!scale || mode == MODE_CLIENT)
		return;
	if (mode == MODE_REPORTS) {
		if (reports)
			adopt(state, sample.down_sent, sample.down_received);
		return;
	}
	/* The first request cannot echo a stamp of this end. */
	sample.has_stamp = probe->t_ss != 0 && state->received &&
			   /* a challenge lies in the future */
			   (__s32)(stamp_us(at_ns) - sample.stamp) >= 0;
	if (mode == MODE_BOTH) {
		sample.has_up = 1;
		sample.has_down = sample.has_stamp && !reports;
	} else if (reports) {
		take_loss(&state->up, &state->known, KNOWN_UP_AVERAGE, scale, stamp_us(at_ns),
			  silence_before(state, at_ns), sample.down_sent);
	}
	take_sample(state, scale, &pace, &sample);
}

/* The client's sample, from a response. */
static __always_inline void measure_response(struct path_state *state, struct host_state *host,
					     const struct path_config *path, __u64 at_ns,
					     __u32 received, const struct probe_packet *packet, int late)
{
	const struct probe_data *probe = &packet->probe;
	__u32 scale_id = path->scale & SCALE_MASK;
	struct scale *scale = bpf_map_lookup_elem(&segue_scales, &scale_id);
	struct pace pace = pace_of(path, 0);
	__u8 mode = mode_of(path);
	struct sample sample = {
		.at_ns = at_ns,
		.stamp = bpf_ntohl(probe->t_sc),
		.dt = bpf_ntohl(probe->dt),
		.up_sent = bpf_ntohl(probe->sc),
		.up_received = bpf_ntohl(probe->r),
		.down_sent = bpf_ntohl(probe->ss),
		.down_received = received,
		.down_us = stamp_us(at_ns),
		.has_stamp = 1,
		.has_up = mode != MODE_ROUND_TRIP_LOSS,
		.has_down = mode != MODE_ROUND_TRIP_LOSS,
		.late = late,
		.question = is_question(&packet->header),
	};

	if (!scale)
		return;
	take_sample(state, scale, &pace, &sample);
	if (mode == MODE_ROUND_TRIP_LOSS || mode == MODE_REPORTS)
		take_round_trip(host, scale, &pace, stamp_us(at_ns),
				idle_before(state, host, at_ns), state->received + 1);
}

/* Updates the path's state with a request that counts. */
static __always_inline void take_request(struct path_state *state, const struct path_config *path,
					 __u64 at_ns, __u32 received,
					 const struct probe_packet *packet)
{
	measure_request(state, path, at_ns, received, packet);
	/* Held and unsolicited responses repeat these values. */
	if (mode_of(path) != MODE_CLIENT || path->flags & PATH_RIDES) {
		state->t_sc = bpf_ntohl(packet->probe.t_sc);
		state->up.sent = bpf_ntohl(packet->probe.sc);
		state->up.received = received;
	}
	state->received_ns = at_ns;
	state->received += 1;
	state->heard_at = tick(at_ns);
}

/* Updates the path's state with a response that counts; the next request echoes the newest
 * response. */
static __always_inline void take_response(struct path_state *state, struct host_state *host,
					  const struct path_config *path, __u64 at_ns,
					  __u32 received, const struct probe_packet *packet,
					  int late)
{
	measure_response(state, host, path, at_ns, received, packet, late);
	state->received_ns = at_ns;
	state->received += 1;
	if (late)
		return;
	host->echo_t_ss = bpf_ntohl(packet->probe.t_ss);
	host->echo_ss = bpf_ntohl(packet->probe.ss);
	host->echo_r = received;
	host->held_since = stamp_us(at_ns);
}

/* Handles a request that counts; true if a threshold was crossed. Not static, so that the verifier
 * checks the averages once rather than once per caller. */
__noinline int take_counted_request(__u32 slot, __u64 at_ns, __u32 received,
				    const struct probe_packet *packet)
{
	struct path_config *path = path_of(slot);
	struct path_state *state = state_of(slot);

	if (!path || !state || !packet)
		return 0;
	take_request(state, path, at_ns, received, packet);
	return crosses(state);
}

/* Handles a response that counts; true if a threshold was crossed. */
__noinline int take_counted_response(__u32 slot, __u64 at_ns, __u32 received,
				     const struct probe_packet *packet, int late)
{
	struct path_config *path = path_of(slot);
	struct path_state *state = state_of(slot);
	struct host_state *host = host_of(slot);

	if (!path || !state || !host || !packet)
		return 0;
	take_response(state, host, path, at_ns, received, packet, late);
	return crosses_at_host(state, host);
}

/* Sends the response that was still waiting when the next request arrived. */
static __noinline int release_held(__u32 slot, __u8 family, struct path_state *state, __u64 newest)
{
	struct probe_packet packet = {};

	if (!state || !take_held(state, (__u32)newest))
		return 0;
	copy_held(state, newest, &packet);
	have_sent(slot, family, state->received_ns, &packet);
	return 0;
}

/* Handles a request; `received` is the number of packets so far, including this one. Returns whether
 * this packet must become the response, or -1 for a replay. */
static __always_inline int accept_request(struct __sk_buff *skb, __u32 slot,
					const struct outer *outer, const struct path_config *path,
					struct path_state *state,
					const struct probe_packet *packet, __u64 at_ns, int alone,
					__u32 *received, __u32 *challenge)
{
	int new, rides = path->flags & PATH_RIDES, answers = alone;
	__u32 seq = bpf_ntohl(packet->probe.seq);
	__u8 wants = 0;
	__u64 last;

	if (!is_newer(&state->newest, seq, packet, &last))
		return -1;
	if (rides)
		release_held(slot, outer->family, state, last);
	if (alone)
		*received = __sync_fetch_and_add(&state->rx_packets, packet_count(&packet->header)) +
			    packet_count(&packet->header);
	new = learn_endpoint(slot, state, outer, skb->ifindex, packet, at_ns, challenge);
	new |= says_new(state, last, state->newest, packet->probe.heard);
	new |= alone && packet->header.age;
	new |= take_counted_request(slot, at_ns, *received, packet);
	/* A request that comes alone may express doubt about the path, and the answer to a question
	 * cannot ride. */
	if (rides && !*challenge &&
	    !(alone && (path->flags & PATH_FOLLOWS_USE || !packet_count(&packet->header))) &&
	    hold(slot, path, state, at_ns, seq))
		answers = 0;
	else if (!alone)
		wants = EVENT_ANSWER;
	if (!new && path->flags & PATH_QUIET)
		wants |= EVENT_QUIET;
	if (wants != EVENT_QUIET)
		report(slot, KIND_REQUEST, wants, at_ns, *received, outer, packet);
	return answers;
}

static __always_inline int handle_request(struct __sk_buff *skb, __u32 slot,
					  const struct outer *outer, const struct path_config *path,
					  struct path_state *state, struct scratch *room, __u64 at_ns)
{
	struct probe_packet *packet = &room->packet;
	int answers = accept_request(skb, slot, outer, path, state, packet, at_ns, 1, &room->received,
				     &room->challenge);

	if (answers < 0)
		return drop(DROP_REPLAY);
	if (!answers)
		return TC_ACT_SHOT; /* consumed */
	return answer(skb, outer, path, state, packet, &room->held, at_ns, room->received,
		      room->challenge);
}

/* Handles a response; true if it must not count. */
static __always_inline int accept_response(__u32 slot, const struct outer *outer,
					 const struct path_config *path, struct path_state *state,
					 const struct probe_packet *packet, __u64 at_ns, int alone,
					 __u32 received)
{
	struct host_state *host = host_of(slot);
	__u32 seq = bpf_ntohl(packet->probe.seq);
	__u8 kind = alone && outer->header.flags & FLAG_UNSOLICITED ? KIND_UNSOLICITED
								    : KIND_RESPONSE;
	int order, new = 1;
	__u64 last;

	if (!host)
		return 1;
	if (kind == KIND_RESPONSE)
		order = place_response(state, host, seq, packet, &last);
	else
		order = is_newer(&host->unsolicited, seq, packet, &last) ? 0 : -1;
	if (order < 0)
		return 1;
	if (alone)
		received = __sync_fetch_and_add(&state->rx_packets, packet_count(&packet->header)) +
			   packet_count(&packet->header);
	if (kind == KIND_RESPONSE) {
		new = take_counted_response(slot, at_ns, received, packet, order);
	}
	if (kind == KIND_RESPONSE && !order)
		new |= says_new(state, last, state->newest, packet->probe.heard);
	host->heard_ns = at_ns;
	/* The sender of a question must learn which question was answered. */
	new |= alone && !packet_count(&packet->header);
	if (new || !(path->flags & PATH_QUIET))
		report(slot, kind, 0, at_ns, received, outer, packet);
	return 0;
}

/* A packet size test, or the answer to one: reported to the daemon and not counted. */
static __noinline int handle_size(struct __sk_buff *skb, __u32 slot, const struct outer *outer)
{
	struct path_config *path = path_of(slot);
	struct scratch *room = scratch();
	struct probe_packet *packet;

	if (!path || !outer || !room)
		return drop(DROP_UNKNOWN_INDEX);
	packet = &room->packet;
	if (outer->payload < sizeof(*packet) ||
	    bpf_skb_load_bytes(skb, outer->at, packet, sizeof(*packet)))
		return drop(DROP_TRUNCATED);
	if (probe_mac(packet, path->key0, path->key1) != packet->mac)
		return drop(DROP_MAC);
	if (bpf_ntohl(packet->probe.t_sc) >> 16 != outer->payload)
		return drop(DROP_FIELD);
	report(slot, KIND_SIZE, 0, 0, outer->tos, outer, packet);
	return TC_ACT_SHOT; /* consumed */
}

/* Handles a probe whose outer headers are in the scratch area. */
static __noinline int handle_probe(struct __sk_buff *skb, __u32 slot)
{
	struct path_config *path = path_of(slot);
	struct path_state *state = state_of(slot);
	__u64 at_ns = arrival_ns(skb);
	struct scratch *room = scratch();
	const struct outer *outer;
	struct probe_packet *packet;

	if (!path || !state || !room)
		return drop(DROP_UNKNOWN_INDEX);
	outer = &room->outer;
	packet = &room->packet;
	if ((outer->header.version_type & 15) != (is_anchor ? TYPE_REQUEST : TYPE_RESPONSE))
		return drop(DROP_TYPE);
	if (outer->payload < sizeof(*packet))
		return drop(DROP_TRUNCATED);
	if (outer->payload > sizeof(*packet))
		return drop(DROP_FIELD);
	if (bpf_skb_load_bytes(skb, outer->at, packet, sizeof(*packet)))
		return drop(DROP_TRUNCATED);
	if (probe_mac(packet, path->key0, path->key1) != packet->mac)
		return drop(DROP_MAC);
	if (is_anchor)
		return handle_request(skb, slot, outer, path, state, room, at_ns);
	if (accept_response(slot, outer, path, state, packet, at_ns, 1, 0))
		return drop(DROP_REPLAY);
	return TC_ACT_SHOT; /* consumed */
}

/* Reads the probe of a ride; -1, or a drop reason that refuses the whole packet. */
static __always_inline int read_ride(struct __sk_buff *skb, const struct outer *outer,
				     const struct path_config *path, struct probe_packet *packet)
{
	int response = !!(outer->header.flags & FLAG_RIDE_RESPONSE);

	if (!(path->flags & PATH_RIDES) || response == !!is_anchor)
		return DROP_TYPE;
	if (outer->payload < sizeof(*packet) ||
	    bpf_skb_load_bytes(skb, outer->at, packet, sizeof(*packet)))
		return DROP_TRUNCATED;
	return probe_mac(packet, path->key0, path->key1) == packet->mac ? -1 : DROP_MAC;
}

/* Handles the probe of a ride. An invalid probe is counted, and does not affect the inner packet. */
static __noinline int take_ride(struct __sk_buff *skb, __u32 slot, const struct outer *outer,
				const struct probe_packet *packet, __u32 received)
{
	struct path_config *path = path_of(slot);
	struct path_state *state = state_of(slot);
	__u64 at_ns = arrival_ns(skb);
	struct scratch *room = scratch();

	if (!path || !state || !outer || !packet || !room)
		return 0;
	/* The answer goes to the known endpoint. */
	if (is_anchor ? accept_request(skb, slot, outer, path, state, packet, at_ns, 0, &received,
				       &room->challenge) < 0
		      : accept_response(slot, outer, path, state, packet, at_ns, 0, received))
		count(DROP_REPLAY);
	return 0;
}

#endif
