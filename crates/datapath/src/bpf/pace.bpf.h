/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* The estimator's parameters for a path, and its work when a request leaves. */
#ifndef SEGUE_PACE_H
#define SEGUE_PACE_H

#include "common.bpf.h"
#include "measure.bpf.h"

/* The loss interval, from the T_KA of the newest probe or of the configuration, and whether it is
 * suspended. */
static __always_inline struct pace pace_of(const struct path_config *path, __u64 newest)
{
	__u32 ms = newest >> NEWEST_T_KA_SHIFT & 0xffff;
	__u64 t_ka_us = is_anchor && ms ? ms * 1000 : path->t_ka_us, t_l_us;
	struct pace pace = {
		.silence = path->silence,
		.deaf = !!(path->flags & PATH_DEAF),
		.n = path->n ? path->n : 1,
		.early = !!(path->flags & PATH_FOLLOWS_USE),
	};

	t_l_us = t_ka_us * path->n - t_ka_us / 2;
	if (!t_l_us)
		t_l_us = 1;
	pace.t_l_us = t_l_us > MAX_T_L_US ? MAX_T_L_US : t_l_us;
	return pace;
}

/* Evaluates the round-trip loss of a finished interval before a request leaves, or when it has just `left`.
 * So the loss is known even while nothing arrives (Patriarca et al., "When sending out a probe"). */
static __noinline int measure_sending(struct path_state *state, struct host_state *host,
				      const struct path_config *path, __u64 at_ns,
				      __u32 left)
{
	__u32 scale_id;
	struct scale *scale;
	struct pace pace;
	__u8 mode;

	if (is_anchor || !state || !host || !path || !(host->known & KNOWN_UP))
		return 0;
	scale_id = path->scale & SCALE_MASK;
	mode = mode_of(path);
	scale = bpf_map_lookup_elem(&segue_scales, &scale_id);
	if (!scale || (mode != MODE_ROUND_TRIP_LOSS && mode != MODE_REPORTS))
		return 0;
	pace = pace_of(path, 0);
	evaluate_round_trip(host, scale, &pace, stamp_us(at_ns), idle_before(state, host, at_ns),
			    host->sent - left, state->received);
	return 0;
}

#endif
