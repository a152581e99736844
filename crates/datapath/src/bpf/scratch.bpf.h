/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Room that the stack does not have. */
#ifndef SEGUE_SCRATCH_H
#define SEGUE_SCRATCH_H

#include "outer.bpf.h"
#include "parse.bpf.h"

/* Programs do not nest on one processor. */
struct scratch {
	struct probe_event event;
	struct probe_packet held; /* a response on its way out */
	struct probe_packet words; /* what a challenge is made of */
	__u32 challenge; /* what a request's source has to echo, or 0 */
	__u32 received; /* packets of a request's path, this one included */
	struct probe_packet packet;
	struct outer outer;
	struct inner inner;
	__u64 uncut_ns; /* when the daemon was last told of packets in one piece */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} segue_scratch SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&segue_scratch, &zero);
}

#endif
