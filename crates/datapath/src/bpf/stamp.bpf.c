/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* The STAMP reflector, called by the tunnel's ingress programs for packets that are not tunnel
 * packets. */
#include "stamp.bpf.h"

SEC("tc")
int segue_stamp(struct __sk_buff *skb)
{
	struct stamp_outer outer = { .link = ETH_HLEN };

	return stamp_arrived(skb, &outer) ? answer_stamp(skb, &outer) : PASS;
}

/* For interfaces without a frame header. */
SEC("tc")
int segue_stamp_bare(struct __sk_buff *skb)
{
	struct stamp_outer outer = {};

	return stamp_arrived(skb, &outer) ? answer_stamp(skb, &outer) : PASS;
}
