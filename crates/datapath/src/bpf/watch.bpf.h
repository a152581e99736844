/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Notifies a host's daemon when requests stop riding or responses stop coming, so that it can sleep until
 * then. */
#ifndef SEGUE_WATCH_H
#define SEGUE_WATCH_H

#include "data.bpf.h"

#define CLOCK_MONOTONIC 1

struct watch {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, struct watch);
} segue_watches SEC(".maps");

/* A path's timer has fired. If its deadline has moved in the meantime, `watch_rides` has rearmed it. */
static int on_watch(void *map, __u32 *slot, struct watch *watch)
{
	struct host_state *host = host_of(*slot);
	__u64 now_ns = bpf_ktime_get_ns();

	if (!host || !host->watch_ns || host->watch_ns > now_ns)
		return 0;
	have_looked_at(*slot, now_ns);
	return 0;
}

/* Handles the ride of a request in the step that began at `step_ns`: another request must leave by the end of
 * the next step. The daemon's timeout for responses may be earlier. */
static __always_inline void watch_rides(__u32 slot, const struct path_config *path,
					const struct path_state *state, struct host_state *host,
					__u64 step_ns, __u64 now_ns)
{
	struct watch *watch = bpf_map_lookup_elem(&segue_watches, &slot);
	__u64 t_ka_ns = path->t_ka_us * 1000ULL, until = step_ns + 2 * t_ka_ns;
	__u64 silent = state->received_ns + t_ka_ns * (path->k + 2) + t_ka_ns / 2;

	if (!watch)
		return;
	if (silent > now_ns && silent < until)
		until = silent;
	/* Fails if the timer is already initialised. */
	bpf_timer_init(&watch->timer, &segue_watches, CLOCK_MONOTONIC);
	host->watch_ns = until;
	if (bpf_timer_set_callback(&watch->timer, on_watch) ||
	    bpf_timer_start(&watch->timer, until - now_ns, 0))
		host->watch_ns = 0;
}

#endif
