/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Information from data packets about a path: that it is in use, that it works, and when the peer last heard
 * this end. */
#ifndef SEGUE_DATA_H
#define SEGUE_DATA_H

#include "common.bpf.h"

/* Converts a time to the unit of `data_at` and `heard_at`. */
static __always_inline __u16 tick(__u64 now_ns)
{
	return now_ns >> TICK_SHIFT;
}

/* The age that an anchor's data packets state. Ages that exceed a byte are stated as the maximum. This is
 * correct for 275 s; by then the path has been declared down. */
static __always_inline __u8 stated_age(const struct path_state *state, __u64 now_ns)
{
	__u16 ticks = tick(now_ns) - state->heard_at;

	return ticks >= 254 ? 255 : ticks + 1;
}

/* Reports an event on a path to the daemon, without a probe. */
static __always_inline void tell(__u32 slot, __u64 now_ns, __u8 kind)
{
	struct probe_event event = { .at_ns = now_ns, .slot = slot, .kind = kind };

	if (bpf_ringbuf_output(&segue_events, &event, sizeof(event), 0))
		count(DROP_QUEUE_FULL);
}

/* Makes the daemon check a path. */
static __always_inline void have_looked_at(__u32 slot, __u64 now_ns)
{
	tell(slot, now_ns, KIND_LOOK);
}

/* True if departing data end a silence. */
static __always_inline int is_after_silence(const struct host_state *host, __u64 now_ns)
{
	__u64 last = host->data_out_ns > host->data_in_ns ? host->data_out_ns : host->data_in_ns;

	return now_ns > last + SILENCE_NS;
}

/* Handles data that leave a host. */
static __noinline int data_left(__u32 slot, __u64 now_ns)
{
	struct path_config *path = path_of(slot);
	struct host_state *host = host_of(slot);
	int calls;

	if (!path || !host)
		return 0;
	calls = path->flags & PATH_FOLLOWS_USE && is_after_silence(host, now_ns);
	host->data_out_ns = now_ns;
	if (calls)
		have_looked_at(slot, now_ns);
	return 0;
}

/* Handles data that arrive at a host. */
static __noinline int data_came(__u32 slot, __u32 packets, __u8 age)
{
	struct path_config *path = path_of(slot);
	struct host_state *host = host_of(slot);
	__u64 now_ns = bpf_ktime_get_coarse_ns(), heard = now_ns - ((__u64)age << TICK_SHIFT);
	int calls;

	if (!path || !host)
		return 0;
	calls = path->flags & PATH_FOLLOWS_USE && is_after_silence(host, now_ns);
	host->data_in_ns = now_ns;
	__sync_fetch_and_add(&host->data_packets, packets);
	if (host->heard_ns < now_ns)
		host->heard_ns = now_ns;
	if (age && age != 255 && host->heard_back_ns < heard)
		host->heard_back_ns = heard;
	if (calls)
		have_looked_at(slot, now_ns);
	return 0;
}

#endif
