/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* The source of a path's requests, and the proof that its host receives there
 * (docs/wire/tunnel-and-probe.md, "Endpoints"). */
#ifndef SEGUE_SOURCE_H
#define SEGUE_SOURCE_H

#include "probe.bpf.h"
#include "scratch.bpf.h"

#define CHALLENGE_BITS 30
/* Number of first requests of a path that are compared at any rate, and the minimum interval for later
 * ones. */
#define CHALLENGE_FREE 4
#define CHALLENGE_GAP_NS 4000000LL

/* The value that replaces t_Ss in answers to a source that has not yet proved that it receives them.
 * It lies ahead of the clock, so that neither end mistakes it for a stamp, and changes every 18
 * minutes. */
static __always_inline __u32 challenge_for(__u32 slot, const struct outer *outer, __u64 at_ns)
{
	struct scratch *room = scratch();
	__u64 epoch = (at_ns / 1000) >> CHALLENGE_BITS, mac;
	struct probe_packet *words;

	if (!room)
		return 1;
	words = &room->words;
	__builtin_memset(words, 0, sizeof(*words));
	words->header.index = slot;
	words->header.cookie = epoch;
	words->probe.seq = outer->remote[0];
	words->probe.t_sc = outer->remote[1];
	words->probe.t_ss = outer->remote[2];
	words->probe.dt = outer->remote[3];
	words->probe.sc = outer->remote_port;
	mac = probe_mac(words, challenge_key[0], challenge_key[1]);
	/* Zero would mean that there is no echo. */
	return ((__u32)(epoch + 1) << CHALLENGE_BITS) + (mac & ((1U << CHALLENGE_BITS) - 1)) ?: 1;
}

/* True if a request's echo may be compared with a challenge: rarely enough to prevent guessing. */
static __always_inline int may_compare(const struct path_state *state, __u64 at_ns)
{
	return state->received < CHALLENGE_FREE ||
	       (__s64)(at_ns - state->received_ns) >= CHALLENGE_GAP_NS;
}

static __always_inline int is_remote(const struct endpoint *to, const struct outer *outer)
{
	return to->local && to->remote_port == outer->remote_port &&
	       same_address(to->remote, outer->remote);
}

/* Handles a request from another source than the previous one. The source becomes the path's remote end
 * if it already is, or if it echoes its challenge; returns the value that it must echo first, or 0. */
static __noinline __u32 learn_source(__u32 slot, const struct outer *outer, __u32 ifindex,
				     const struct probe_packet *request, __u64 at_ns)
{
	struct path_state *state = state_of(slot);
	struct endpoint *to;
	__u32 guard, challenge;

	if (!state || !outer || !request)
		return 1;
	to = &state->endpoint;
	if (!is_remote(to, outer)) {
		challenge = challenge_for(slot, outer, at_ns);
		if (bpf_ntohl(request->probe.t_ss) != challenge || !may_compare(state, at_ns))
			return challenge;
	}
	guard = state->guard;
	/* If two changes coincide, one wins, and the next request settles it. */
	if (guard & 1 || __sync_val_compare_and_swap(&state->guard, guard, guard | 1) != guard)
		return 0;
	copy_address(to->remote, outer->remote);
	to->remote_port = outer->remote_port;
	to->ifindex = ifindex;
	to->local = outer->local_id;
	barrier();
	if ((guard & GUARD_COUNT) == GUARD_COUNT - 1)
		__sync_fetch_and_and(&state->guard, ~GUARD_COUNT);
	else
		__sync_fetch_and_add(&state->guard, 1);
	return 0;
}

/* Records the source of a request, before it counts; true if this changes the destination of the path's
 * packets. `*challenge` receives the value that the source must echo first, or 0. */
static __always_inline int learn_endpoint(__u32 slot, const struct path_state *state,
					  const struct outer *outer, __u32 ifindex,
					  const struct probe_packet *request, __u64 at_ns,
					  __u32 *challenge)
{
	const struct endpoint *to = &state->endpoint;

	*challenge = 0;
	if (is_remote(to, outer) && to->local == outer->local_id && to->ifindex == ifindex)
		return 0;
	*challenge = learn_source(slot, outer, ifindex, request, at_ns);
	return !*challenge;
}

#endif
