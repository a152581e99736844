/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Shared by the relay's programs and its daemon, with the conventions of segue.bpf.h. */
#ifndef SEGUE_RELAY_H
#define SEGUE_RELAY_H

#include "segue.bpf.h"

/* The headers around inner packets: segue_ip::Form. */
enum relay_form {
	FORM_IP = 0,
	FORM_GRE = 1,
	FORM_UDP = 2,
	FORM_OPTIMIZED = 3,
};

/* segue_ip::Tunnel, indexed by slot, and its counters. */
struct relay_tunnel {
	__u32 local[4];
	__u32 remote[4];
	__u32 home[4]; /* FORM_OPTIMIZED: all zero for none */
	__u32 peer[4];
	__u32 key;     /* FORM_GRE: of sent packets, network order */
	__u16 local_port; /* FORM_UDP, network order */
	__u16 remote_port;
	__u32 ifindex; /* outgoing interface */
	__u8 form;
	__u8 family; /* of the outer header, 4 or 6; 0: unused slot */
	__u8 keyed;  /* FORM_GRE: a key is present */
	__u8 next_family; /* of the next hop, 4 or 6 */
	__u32 next[4];
	__u64 sent_packets;
	__u64 sent_bytes; /* of inner packets */
	__u64 received_packets;
	__u64 received_bytes;
};

/* The key that identifies the tunnel of an arriving packet. */
struct relay_end {
	__u32 local[4];
	__u32 remote[4];
	__u32 home[4]; /* FORM_OPTIMIZED: this node's home address, in a routing header */
	__u32 peer[4]; /* the peer's home address, in a Home Address option */
	__u32 key;     /* FORM_GRE: network order; FORM_UDP: both ports in the byte order of packets */
	__u8 form;
	__u8 keyed;
	__u8 reserved[2];
};

/* Inner sources at a port: a tunnel's slot, LINK_PORT plus an interface, or ANY_LINK for sources that at least one link
 * may bring. A longest-prefix key. */
#define LINK_PORT 0x80000000U
#define ANY_LINK 0xffffffffU
struct relay_source {
	__u32 bits; /* significant bits: 64 of the port and the family, plus the prefix length */
	__u32 port;
	__u32 family; /* 4 or 6; keeps the two families apart */
	__u32 address[4];
};

enum relay_direction {
	RELAY_TO = 0,
	RELAY_FROM = 1,
};

/* A prefix of destinations or sources, also a longest-prefix key. The kernel stores the value directly after the fields
 * that follow `bits`: unless these are a multiple of eight bytes, its counters can straddle cache lines, and atomic
 * additions to them lock the whole bus. */
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

/* Number of queues whose packets are counted; a queue's number is taken modulo this. The counts are a hint that keeps
 * released packets in order. */
#define QUEUES 65536

struct relay_exit {
	__u8 kind;
	__u8 release;     /* EXIT_HOLD: the held packets are being released, to this kind of exit */
	__u8 next_family; /* EXIT_LINK: 4 or 6; 0: the destination itself is the next hop */
	__u8 reserved;
	__u32 number; /* a tunnel's slot or an interface's index */
	/* In the table of flows these fields complete the cache line in which the key ends. */
	__u64 packets;
	__u64 bytes;
	__u64 last_seen_ns;
	__u32 next[4];
	__u32 queue; /* EXIT_HOLD, EXIT_ASK: queue in user space */
	__u32 reserved_queue;
	__u64 received_packets; /* for a flow: packets in the other direction, from tunnels */
	__u64 received_bytes;
};

/* The hosts whose packets are counted by prefix: none, those behind tunnels, or those on links. */
enum relay_counted {
	COUNT_NOTHING = 0,
	COUNT_BEHIND_TUNNELS = 1,
	COUNT_AT_LINKS = 2,
};

/* Packets and bytes from and to a host's prefix. */
struct relay_count {
	__u64 from_packets;
	__u64 from_bytes;
	__u64 to_packets;
	__u64 to_bytes;
};

/* A packet for the daemon that the kernel would refuse. */
#define MESSAGE_MAX 1536
struct relay_message {
	__u32 ifindex; /* interface of arrival */
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
