/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* What the relay's programs and its daemon share, in the manner of segue.bpf.h. */
#ifndef SEGUE_RELAY_H
#define SEGUE_RELAY_H

#include "segue.bpf.h"

/* What is around inner packets: segue_ip::Form. */
enum relay_form {
	FORM_IP = 0,
	FORM_GRE = 1,
	FORM_UDP = 2,
	FORM_OPTIMIZED = 3,
};

/* segue_ip::Tunnel, in the entry of its slot, and what it has carried. */
struct relay_tunnel {
	__u32 local[4];
	__u32 remote[4];
	__u32 home[4]; /* FORM_OPTIMIZED: all zero is none */
	__u32 peer[4];
	__u32 key;     /* FORM_GRE: in what goes in, network order */
	__u16 local_port; /* FORM_UDP, network order */
	__u16 remote_port;
	__u32 ifindex; /* that it leaves over */
	__u8 form;
	__u8 family; /* of the outer header, 4 or 6; 0: there is no tunnel */
	__u8 keyed;  /* FORM_GRE: there is a key */
	__u8 next_family; /* of the next hop, 4 or 6 */
	__u32 next[4];
	__u64 sent_packets;
	__u64 sent_bytes; /* of inner packets */
	__u64 received_packets;
	__u64 received_bytes;
};

/* By what an arriving packet's tunnel is known. */
struct relay_end {
	__u32 local[4];
	__u32 remote[4];
	__u32 home[4]; /* FORM_OPTIMIZED: this node's, in a routing header */
	__u32 peer[4]; /* the other's, in a Home Address option */
	__u32 key;     /* FORM_GRE: network order; FORM_UDP: both ports as they stand in packets */
	__u8 form;
	__u8 keyed;
	__u8 reserved[2];
};

/* Inner sources at a port: a tunnel's slot, LINK_PORT and an interface, or ANY_LINK for what at least one link may bring.
 * For longest prefixes. */
#define LINK_PORT 0x80000000U
#define ANY_LINK 0xffffffffU
struct relay_source {
	__u32 bits; /* that count: 64 of the port and the family, and those of the prefix */
	__u32 port;
	__u32 family; /* 4 or 6: no prefix of the one has addresses of the other */
	__u32 address[4];
};

enum relay_direction {
	RELAY_TO = 0,
	RELAY_FROM = 1,
};

/* A prefix of destinations or sources, likewise. The kernel puts an entry just behind what follows `bits`: only with a
 * multiple of eight bytes there do its counters not straddle lines of the cache, which locks the whole bus. */
struct relay_prefix {
	__u32 bits;
	__u32 direction;
	__u32 family;
	__u32 address[4];
};

/* segue_ip::Exit. */
enum relay_exit_kind {
	EXIT_NONE = 0,
	EXIT_TUNNEL = 1,
	EXIT_LINK = 2,
	EXIT_HOLD = 3,
	EXIT_DROP = 4,
	EXIT_ASK = 5,
};

/* Packets that are held, by the number of their queue modulo QUEUES; a hint, by which those that are released stay in
 * order. */
#define QUEUES 65536

struct relay_exit {
	__u8 kind;
	__u8 release;     /* EXIT_HOLD: what was held goes, to where this kind leads */
	__u8 next_family; /* EXIT_LINK: 4 or 6; 0: the destination itself is the next hop */
	__u8 reserved;
	__u32 number; /* a tunnel's slot, an interface's index */
	/* In a table of flows these end a line of the cache that has the end of the key. */
	__u64 packets;
	__u64 bytes;
	__u64 last_seen_ns;
	__u32 next[4];
	__u32 queue; /* EXIT_HOLD, EXIT_ASK: in user space */
	__u32 reserved_queue;
	__u64 received_packets; /* of a flow: of the other direction, out of tunnels */
	__u64 received_bytes;
};

/* Whose packets are counted by prefix: nobody's; those of hosts behind tunnels; those of hosts at links. */
enum relay_counted {
	COUNT_NOTHING = 0,
	COUNT_BEHIND_TUNNELS = 1,
	COUNT_AT_LINKS = 2,
};

/* What came from a host's prefix, and what went to it. */
struct relay_count {
	__u64 from_packets;
	__u64 from_bytes;
	__u64 to_packets;
	__u64 to_bytes;
};

/* A packet for the daemon that the kernel would refuse. */
#define MESSAGE_MAX 1536
struct relay_message {
	__u32 ifindex; /* that it came over */
	__u32 len;
	__u8 bytes[MESSAGE_MAX]; /* from its IPv6 header on */
};

_Static_assert(sizeof(struct relay_tunnel) == 128, "tunnel");
_Static_assert(sizeof(struct relay_end) == 72, "end of a tunnel");
_Static_assert(sizeof(struct relay_source) == 28, "inner sources");
_Static_assert(sizeof(struct relay_prefix) == 28, "prefix");
_Static_assert((sizeof(struct relay_prefix) - sizeof(__u32)) % 8 == 0, "counters in line");
_Static_assert(sizeof(struct relay_exit) == 72, "exit");
_Static_assert(sizeof(struct relay_count) == 32, "count");

#endif
