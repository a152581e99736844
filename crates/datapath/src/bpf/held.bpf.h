/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* A response that waits for a ride (docs/wire/tunnel-and-probe.md, "Rides"). It stands nowhere by
 * itself: it answers the newest request, whose fields the state has, as long as GUARD_HELD is set. Who
 * clears that bit owns the response. */
#ifndef SEGUE_HELD_H
#define SEGUE_HELD_H

#include "probe.bpf.h"

/* Whose responses wait, and until when: for the daemon's sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1); /* set before loading */
	__type(value, struct held);
} segue_held SEC(".maps");

static __always_inline int take_held(struct path_state *state)
{
	return state->guard & GUARD_HELD &&
	       __sync_fetch_and_and(&state->guard, ~GUARD_HELD) & GUARD_HELD;
}

static __always_inline void give_back_held(struct path_state *state)
{
	__sync_fetch_and_or(&state->guard, GUARD_HELD);
}

/* How long a response may wait, in microseconds: T_KA as it is set or as the host states it. */
static __always_inline __u32 longest_wait(const struct path_config *path, __u64 newest)
{
	__u32 stated = (newest >> NEWEST_T_KA_SHIFT & 0xffff) * 1000;

	return stated && stated < path->t_ka_us ? stated : path->t_ka_us;
}

/* The request that a response held answers, as it came but for what the response has of its own; `r`
 * is filled. To be called by the response's owner. */
static __always_inline void read_held(const struct path_state *state, __u64 newest,
				      struct probe_packet *packet)
{
	packet->header.k = newest >> NEWEST_K_SHIFT & 0xff;
	packet->probe.seq = bpf_htonl((__u32)newest);
	packet->probe.t_sc = bpf_htonl(state->t_sc);
	packet->probe.sc = bpf_htonl(state->up.sent);
	packet->probe.r = bpf_htonl(state->up.received);
	packet->probe.t_ka_ms = bpf_htons(newest >> NEWEST_T_KA_SHIFT & 0xffff);
}

/* Keeps the response to the newest request back, if packets leave that could take it; false if it must
 * go at once. */
static __always_inline int hold(__u32 slot, const struct path_config *path,
				struct path_state *state, __u64 at_ns)
{
	__u32 wait = longest_wait(path, state->newest), now = stamp_us(bpf_ktime_get_ns());
	struct held entry = { .slot = slot, .until_us = stamp_us(at_ns) + wait };

	if (!state->data_us || now - state->data_us > wait ||
	    bpf_map_push_elem(&segue_held, &entry, 0))
		return 0;
	give_back_held(state);
	return 1;
}

#endif
