/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* A probe as a whole UDP datagram in a frame. */
#ifndef SEGUE_DATAGRAM_H
#define SEGUE_DATAGRAM_H

#include "common.bpf.h"
#include "probe.bpf.h"

/* Bytes of the UDP datagram. */
#define PROBE_DATAGRAM (sizeof(struct udphdr) + sizeof(struct probe_packet))

/* The part after the addresses, common to both families. Through pointers to this struct the
 * compiler copies words; through the packed frames it would copy bytes. */
struct probe_datagram {
	struct udphdr udp;
	struct probe_packet packet;
};

_Static_assert(sizeof(struct probe_datagram) == PROBE_DATAGRAM, "no padding");

static __always_inline __u64 sum_of(__u64 word)
{
	return (__u32)word + (word >> 32);
}

/* Computes the full checksum, because a virtual link may have left the received one to a device. */
static __always_inline __u16 datagram_checksum(const __u32 local[4], const __u32 remote[4],
					       const struct probe_datagram *datagram)
{
	const __u64 *word = (const void *)&datagram->packet;
	__u64 sum = pseudo_sum(local, remote, datagram->udp.len);

	sum += datagram->udp.source + (__u64)datagram->udp.dest + datagram->udp.len;
	for (int i = 0; i < 7; i++)
		sum += sum_of(word[i]);
	return udp_check(sum);
}

#endif
