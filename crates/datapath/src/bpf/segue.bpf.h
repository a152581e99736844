/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * What the programs and the daemon share. Widths are fixed and padding is explicit; the Rust types
 * are generated from these. "Network order" fields hold the bytes as they stand in packets; all
 * others are in the machine's order. IPv4 addresses are v4-mapped IPv6 addresses.
 */
#ifndef SEGUE_BPF_H
#define SEGUE_BPF_H

#include <linux/types.h>

/* The numbers of segue_wire::DropReason. */
enum drop_reason {
	DROP_TRUNCATED = 0,
	DROP_VERSION = 1,
	DROP_TYPE = 2,
	DROP_FIELD = 3,
	DROP_UNKNOWN_INDEX = 4,
	DROP_COOKIE = 5,
	DROP_MAC = 6,
	DROP_REPLAY = 7,
	DROP_INNER_SOURCE = 8,
	DROP_INNER_DESTINATION = 9,
	DROP_INNER_PACKET = 10,
	DROP_NO_REMOTE = 11,
	DROP_ENCAPSULATION = 12,
	DROP_DECAPSULATION = 13,
	DROP_NO_HOST = 14,
	DROP_QUEUE_FULL = 15,
	DROP_REASONS = 16,
};

/* Marks of packets that the daemon puts onto the TUN device itself. */
#define MARK_PROBE 0x5e60e001
#define MARK_AGAIN 0x5e60e002

/* The tunnel header, segue_wire::Header. Network order. */
struct tunnel_header {
	__u8 version_type;
	__u8 flags;
	__u8 k;
	__u8 reserved;
	__u32 index;
	__u64 cookie;
};

#define HEADER_VERSION 1
#define TYPE_DATA 0
#define TYPE_REQUEST 2
#define TYPE_RESPONSE 3
#define FLAG_DATA_ONE_WAY 1
#define FLAG_UNSOLICITED 1

/* segue_wire::Probe. Network order. */
struct probe_data {
	__u32 seq;
	__u32 t_sc;
	__u32 t_ss;
	__u32 dt;
	__u32 sc;
	__u32 ss;
	__u32 r;
	__u16 heard;
	__u16 t_ka_ms;
};

/* UDP payload of a probe. */
struct probe_packet {
	struct tunnel_header header;
	struct probe_data probe;
	__u64 mac; /* little-endian */
};

#define KIND_REQUEST 0
#define KIND_RESPONSE 1
#define KIND_UNSOLICITED 2

/* A probe as the daemon orders it: a packet on the TUN device with MARK_PROBE. As long as a probe
 * packet, so that the program only puts bytes in front. */
struct probe_order {
	__u32 slot;
	__u32 held_since;
	__u8 kind;
	__u8 k;
	__u8 reserved[6];
	struct probe_data probe;
	__u64 reserved_mac;
};

/* segue_wire::FlowKey; ports in network order. */
struct flow_key {
	__u32 src[4];
	__u32 dst[4];
	__u16 sport;
	__u16 dport;
	__u8 protocol;
	__u8 reserved[3];
	__u32 label;
};

struct flow_value {
	__u32 slot;
	__u32 reserved;
	__u64 packets;
	__u64 bytes;
	__u64 last_seen_ns;
};

/* Outer addresses of a path. `family` is 4, 6 or 0 for none. */
struct endpoint {
	__u32 local[4];
	__u32 remote[4];
	__u32 ifindex;
	__u16 remote_port; /* network order */
	__u8 family;
	__u8 reserved;
};

#define PATH_USED 1
#define PATH_VIA 2
#define PATH_VIA_ONE_WAY 4

/* Written by the daemon alone. */
struct path_config {
	__u32 flags;
	__u32 owner;
	__u32 tx_index;  /* network order */
	__u32 via_slot;
	__u64 tx_cookie; /* network order */
	__u64 rx_cookie; /* network order */
	__u64 key0;
	__u64 key1;
	struct endpoint endpoint;
	__u32 gateway[4];
	__u16 heard;
	__u8 gateway_family; /* 4, 6 or 0 for none */
	__u8 reserved[5];
};

/* Written by the programs; the daemon clears it when a path begins. */
struct path_state {
	__u64 tx_bytes;
	__u64 rx_bytes;
	__u32 tx_packets;
	__u32 rx_packets;
	__u64 last_seq;    /* last sequence number received; bit 32: there was one */
	__u32 sent_seq;    /* last request sent */
	__u32 current;     /* which of `learned` holds: readers never see one that is being written */
	struct endpoint learned[2];
};

struct inner_owner {
	__u32 owner;
};

struct probe_event {
	__u64 at_ns;
	__u32 slot;
	__u32 received;
	__u32 remote[4];
	__u16 remote_port; /* network order */
	__u8 kind;
	__u8 k;
	__u8 family; /* outer, 4 or 6 */
	__u8 reserved[3];
	struct probe_data probe;
};

/* What the XDP program tells the TC program of a packet that it stripped. */
struct xdp_meta {
	__u32 magic;
	__u32 slot;
	__u32 flags;
};

_Static_assert(sizeof(struct tunnel_header) == 16, "tunnel header");
_Static_assert(sizeof(struct probe_data) == 32, "probe");
_Static_assert(sizeof(struct probe_packet) == 56, "probe packet");
_Static_assert(sizeof(struct probe_order) == sizeof(struct probe_packet), "probe order");
_Static_assert(sizeof(struct flow_key) == 44, "flow key");
_Static_assert(sizeof(struct flow_value) == 32, "flow");
_Static_assert(sizeof(struct endpoint) == 40, "endpoint");
_Static_assert(sizeof(struct path_config) == 112, "path configuration");
_Static_assert(sizeof(struct path_state) == 120, "path state");
_Static_assert(sizeof(struct probe_event) == 72, "probe event");
_Static_assert(sizeof(struct xdp_meta) % 4 == 0 && sizeof(struct xdp_meta) <= 32, "metadata");

#endif
