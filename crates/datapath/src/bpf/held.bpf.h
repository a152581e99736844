/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * A response that waits for a ride (docs/wire/tunnel-and-probe.md, "Rides"). It is not stored: while GUARD_HELD is
 * set, the response to the newest request is waiting, and its fields are in the state. The processor that clears
 * the bit owns the response. No response is lost if a request arrives at the same instant:
 *
 * - The next request first becomes the newest, then takes the bit if it is set, and then writes its own fields. It
 *   can therefore still read the fields of the waiting response.
 * - A ride, and the sweep, copy the fields first, check that their request is still the newest, and take the bit
 *   last. They then own the copy.
 * - A request that sets the bit checks afterwards that it is still the newest. It thereby notices a newer request
 *   that did not see the bit.
 *
 * The number beside the bit identifies the response. Loads are assumed to be ordered.
 */
#ifndef SEGUE_HELD_H
#define SEGUE_HELD_H

#include "data.bpf.h"
#include "probe.bpf.h"

/* The paths with a waiting response and its deadline, for the daemon's sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1); /* set before loading */
	__type(value, struct held);
} segue_held SEC(".maps");

/* Bits of `guard` while the response to number `seq` waits. */
static __always_inline __u32 held_bits(__u32 seq)
{
	return GUARD_HELD | (seq << GUARD_NUMBER_SHIFT & GUARD_NUMBER);
}

static __always_inline int is_held(__u32 guard, __u32 seq)
{
	return (guard & (GUARD_HELD | GUARD_NUMBER)) == held_bits(seq);
}

/* Takes the response to number `seq` if it is waiting. */
static __always_inline int take_held(struct path_state *state, __u32 seq)
{
	__u32 guard;

	/* Other bits of the word may change concurrently, but not this often. */
	for (int i = 0; i < 4; i++) {
		guard = *(volatile __u32 *)&state->guard;
		if (!is_held(guard, seq))
			return 0;
		if (__sync_val_compare_and_swap(&state->guard, guard, guard & ~GUARD_HELD) == guard)
			return 1;
	}
	return 0;
}

/* Longest wait of a response in microseconds: the smaller of the configured T_KA and the host's, and only briefly
 * where detection follows use. */
static __always_inline __u32 longest_wait(const struct path_config *path, __u64 newest)
{
	__u32 stated = (newest >> NEWEST_T_KA_SHIFT & 0xffff) * 1000, wait = path->t_ka_us;

	if (stated && stated < wait)
		wait = stated;
	if (path->flags & PATH_FOLLOWS_USE && wait > HELD_AT_MOST_US)
		wait = HELD_AT_MOST_US;
	return wait;
}

/* The fields that the response copies from its request, and `r`; the other fields of the response are left
 * unset. */
static __always_inline void copy_held(const struct path_state *state, __u64 newest,
				      struct probe_packet *packet)
{
	packet->header.k = newest >> NEWEST_K_SHIFT & 0xff;
	packet->probe.seq = bpf_htonl((__u32)newest);
	packet->probe.t_sc = bpf_htonl(state->t_sc);
	packet->probe.sc = bpf_htonl(state->up.sent);
	packet->probe.r = bpf_htonl(state->up.received);
	packet->probe.t_ka_ms = bpf_htons(newest >> NEWEST_T_KA_SHIFT & 0xffff);
}

/* Copies the waiting response, if there is one and the copy is consistent. Returns the argument for `take_read`, or
 * 0. */
static __always_inline __u32 read_held(const struct path_state *state, struct probe_packet *packet,
				       __u64 *received_ns)
{
	__u32 guard = *(volatile __u32 *)&state->guard;
	__u64 newest;

	if (!(guard & GUARD_HELD))
		return 0;
	barrier();
	newest = *(volatile __u64 *)&state->newest;
	barrier();
	copy_held(state, newest, packet);
	*received_ns = state->received_ns;
	barrier();
	if (*(volatile __u64 *)&state->newest != newest || !is_held(guard, (__u32)newest))
		return 0;
	return guard;
}

/* Takes the response that was copied; false if it is gone. */
static __always_inline int take_read(struct path_state *state, __u32 guard)
{
	return __sync_val_compare_and_swap(&state->guard, guard, guard & ~GUARD_HELD) == guard;
}

/* Makes the thread that reads events send the response from `copy_held` on its own. */
static __always_inline void have_sent(__u32 slot, __u8 family, __u64 received_ns,
				      const struct probe_packet *packet)
{
	struct probe_event *event = bpf_ringbuf_reserve(&segue_events, sizeof(*event), 0);

	if (!event) {
		count(DROP_QUEUE_FULL);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->at_ns = received_ns;
	event->slot = slot;
	event->received = bpf_ntohl(packet->probe.r);
	event->kind = KIND_REQUEST;
	event->k = packet->header.k;
	event->family = family;
	event->wants = EVENT_ANSWER | EVENT_QUIET;
	event->probe = packet->probe;
	bpf_ringbuf_submit(event, 0);
}

/* Holds back the response to the newest request, number `seq`, if departing packets could carry it; false if it
 * must leave at once. */
static __noinline int hold(__u32 slot, const struct path_config *path,
				struct path_state *state, __u64 at_ns, __u32 seq)
{
	__u16 ticks = tick(bpf_ktime_get_ns());
	__u32 wait, guard;
	struct held entry = { .slot = slot };

	if (!path || !state)
		return 0;
	wait = longest_wait(path, state->newest);
	entry.until_us = stamp_us(at_ns) + wait;
	guard = *(volatile __u32 *)&state->guard;
	ticks -= state->data_at;
	if (ticks > (wait * 1000ULL >> TICK_SHIFT) + 1 || !state->data_at || guard & GUARD_HELD ||
	    __sync_val_compare_and_swap(&state->guard, guard,
					(guard & ~GUARD_NUMBER) | held_bits(seq)) != guard)
		return 0;
	if ((__u32)*(volatile __u64 *)&state->newest == seq &&
	    !bpf_map_push_elem(&segue_held, &entry, 0))
		return 1;
	return !take_held(state, seq);
}

#endif
