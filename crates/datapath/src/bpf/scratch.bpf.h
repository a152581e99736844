/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Memory for data that exceed the stack. */
#ifndef SEGUE_SCRATCH_H
#define SEGUE_SCRATCH_H

#include "outer.bpf.h"
#include "parse.bpf.h"

/* One per processor, because programs do not nest on a processor. */
struct scratch {
	struct probe_event event;
	struct probe_packet held; /* a departing response */
	struct probe_packet words; /* input of a challenge */
	__u32 challenge; /* value that a request's source has to echo, or 0 */
	__u32 received; /* packets of a request's path, including this one */
	struct probe_packet packet;
	struct outer outer;
	struct inner inner;
	__u64 uncut_ns; /* when unsegmented packets were last reported to the daemon */
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
