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

#define SIP_WORD(word)                                                                             \
	do {                                                                                       \
		v3 ^= (word);                                                                      \
		SIP_ROUND();                                                                       \
		SIP_ROUND();                                                                       \
		v0 ^= (word);                                                                      \
	} while (0)

/* 64-bit words of a probe packet that its authenticator covers. */
#define MAC_WORDS 6

/* SipHash-2-4 (Aumasson, Bernstein 2012) over the first 48 bytes of a probe packet. `unrolled` is faster
 * if the words are in registers, and uses more stack. */
static __always_inline __u64 words_mac(const __u64 word[MAC_WORDS], __u64 key0, __u64 key1,
				       int unrolled)
{
	__u64 v0 = key0 ^ 0x736f6d6570736575ULL, v1 = key1 ^ 0x646f72616e646f6dULL;
	__u64 v2 = key0 ^ 0x6c7967656e657261ULL, v3 = key1 ^ 0x7465646279746573ULL;

	if (unrolled) {
#pragma unroll
		for (int i = 0; i < MAC_WORDS; i++)
			SIP_WORD(word[i]);
	} else {
		for (int i = 0; i < MAC_WORDS; i++)
			SIP_WORD(word[i]);
	}
	SIP_WORD(48ULL << 56);
	v2 ^= 0xff;
	SIP_ROUND();
	SIP_ROUND();
	SIP_ROUND();
	SIP_ROUND();
	return v0 ^ v1 ^ v2 ^ v3;
}

static __always_inline __u64 probe_mac(const struct probe_packet *packet, __u64 key0, __u64 key1)
{
	return words_mac((const void *)packet, key0, key1, 0);
}

/* How much a request or response itself adds to the counters: 1, or 0 for a question and its answer. */
static __always_inline __u32 packet_count(const struct tunnel_header *header)
{
	return !(header->flags & FLAG_QUESTION);
}

/* True if a probe is a question or answers one; a ride is neither. */
static __always_inline __u8 is_question(const struct tunnel_header *header)
{
	return (header->version_type & 15) != TYPE_RIDE && header->flags & FLAG_QUESTION;
}

/* Microseconds modulo 2^32 on CLOCK_MONOTONIC. */
static __always_inline __u32 stamp_us(__u64 ns)
{
	return (__u32)(ns / 1000);
}

#endif
