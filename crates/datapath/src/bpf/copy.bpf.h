/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Copies of departing data. */
#ifndef SEGUE_COPY_H
#define SEGUE_COPY_H

#include "common.bpf.h"

#define COPIED_BITS 3
#define COPIED_MASK ((1U << COPIED_BITS) - 1)

/* True if a departing packet is one of the first in its window. */
static __always_inline int is_to_be_copied(__u32 slot, __u64 now_ns)
{
	__u32 window = (__u32)(now_ns >> COPY_WINDOW_SHIFT) << COPIED_BITS;
	__u32 place = slot % COPIED_PATHS;
	__u32 *copied = bpf_map_lookup_elem(&segue_copied, &place);

	if (!copied)
		return 0;
	if ((*copied & ~COPIED_MASK) != window)
		*copied = window;
	if ((*copied & COPIED_MASK) >= COPIES)
		return 0;
	*copied += 1;
	return 1;
}

/* Stores a copy of the inner packet, which is all of `skb`. */
static __noinline int keep_copy(struct __sk_buff *skb, __u32 slot, __u64 now_ns)
{
	struct copies *copies = bpf_map_lookup_elem(&segue_copies, &slot);
	__u32 len = skb->len, gso_size = skb->gso_size, number;
	struct copy *copy;

	if (!copies)
		return 0;
	if (len > COPY_MAX && gso_size)
		len = COPY_MAX;
	if (len < sizeof(struct iphdr))
		return 0;
	apart(len);
	if (len > COPY_MAX)
		return 0;
	number = __sync_fetch_and_add(&copies->next, 1);
	copy = &copies->copy[number % COPIES];
	copy->at_ns = 0;
	barrier();
	if (bpf_skb_load_bytes(skb, 0, copy->bytes, len))
		return 0;
	copy->number = number;
	copy->len = len;
	copy->gso_size = gso_size;
	barrier();
	copy->at_ns = now_ns;
	return 0;
}

#endif
