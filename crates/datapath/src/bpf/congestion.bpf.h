/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Explicit congestion notification at the end of a tunnel. */
#ifndef SEGUE_CONGESTION_H
#define SEGUE_CONGESTION_H

#include "parse.bpf.h"

/* Copies a congestion mark of the outer header to the inner packet (RFC 6040, 4.2); false if the
 * packet must be dropped instead. */
static __always_inline int carry_congestion(struct __sk_buff *skb, __u32 at, const struct inner *inner)
{
	__u8 tos = inner->tos | ECN_CE, bytes[2];

	if ((inner->tos & ECN_MASK) == ECN_CE)
		return 1;
	if (!(inner->tos & ECN_MASK))
		return 0;
	if (inner->version == 4)
		return !bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check),
					    bpf_htons(inner->tos), bpf_htons(tos), 2) &&
		       !bpf_skb_store_bytes(skb, at + 1, &tos, 1, 0);
	if (bpf_skb_load_bytes(skb, at, bytes, 2))
		return 0;
	bytes[0] = 6 << 4 | tos >> 4;
	bytes[1] = (bytes[1] & 15) | tos << 4;
	return !bpf_skb_store_bytes(skb, at, bytes, 2, BPF_F_RECOMPUTE_CSUM);
}

#endif
