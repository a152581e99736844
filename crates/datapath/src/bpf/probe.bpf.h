/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Authenticator and clock of the probes. */
#ifndef SEGUE_PROBE_H
#define SEGUE_PROBE_H

#include <bpf/bpf_helpers.h>

#include "segue.bpf.h"

#define ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))

#define SIP_ROUND()                                                                                \
	do {                                                                                       \
		v0 += v1;                                                                          \
		v2 += v3;                                                                          \
		v1 = ROTATE(v1, 13) ^ v0;                                                          \
		v3 = ROTATE(v3, 16) ^ v2;                                                          \
		v0 = ROTATE(v0, 32) + v3;                                                          \
		v2 += v1;                                                                          \
		v1 = ROTATE(v1, 17) ^ v2;                                                          \
		v3 = ROTATE(v3, 21) ^ v0;                                                          \
		v2 = ROTATE(v2, 32);                                                               \
	} while (0)

/* SipHash-2-4 (Aumasson, Bernstein 2012) over the first 48 bytes of a probe packet. */
static __always_inline __u64 probe_mac(const struct probe_packet *packet, __u64 key0, __u64 key1)
{
	const __u64 *word = (const void *)packet;
	__u64 v0 = key0 ^ 0x736f6d6570736575ULL, v1 = key1 ^ 0x646f72616e646f6dULL;
	__u64 v2 = key0 ^ 0x6c7967656e657261ULL, v3 = key1 ^ 0x7465646279746573ULL;
	__u64 last = 48ULL << 56;

	for (int i = 0; i < 6; i++) {
		v3 ^= word[i];
		SIP_ROUND();
		SIP_ROUND();
		v0 ^= word[i];
	}
	v3 ^= last;
	SIP_ROUND();
	SIP_ROUND();
	v0 ^= last;
	v2 ^= 0xff;
	SIP_ROUND();
	SIP_ROUND();
	SIP_ROUND();
	SIP_ROUND();
	return v0 ^ v1 ^ v2 ^ v3;
}

/* Microseconds modulo 2^32 on CLOCK_MONOTONIC. */
static __always_inline __u32 stamp_us(__u64 ns)
{
	return (__u32)(ns / 1000);
}

#endif
