/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * Shared by the programs and the daemon. Widths are fixed and padding is explicit; the Rust types are generated from
 * this file. Fields in "network order" hold the bytes as in packets; all others are in the machine's order. IPv4
 * addresses are v4-mapped IPv6 addresses.
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
	DROP_PAST_TUNNEL = 16,
	DROP_NOT_ALLOWED = 17,
	DROP_TOO_MANY_FLOWS = 18,
	DROP_UNCUT = 19,
	DROP_NO_BINDING = 20,
	DROP_DENIED = 21,
	DROP_HOLD_FULL = 22,
	DROP_HOLD_EXPIRED = 23,
	DROP_TOO_BIG = 24,
	DROP_REASONS = 25,
};

/* Marks of packets that the daemon itself writes to the TUN device. */
enum order_mark {
	MARK_PROBE = 0x5e60e001,
	MARK_AGAIN = 0x5e60e002,
	MARK_OVER = 0x5e60e003, /* like MARK_AGAIN, but over another path: see PATH_ONE_WAY */
};

/* The tunnel header, segue_wire::Header. Network order. */
struct tunnel_header {
	__u8 version_type;
	__u8 flags;
	__u8 k;
	__u8 age; /* when the sender last heard this path, or (in a request) another path in doubt: segue_wire::age */
	__u32 index;
	__u64 cookie;
};

enum heartbeat {
	HEARTBEAT_TIMEOUT_S = 3,
};

#define HEADER_VERSION 1
#define TYPE_DATA 0
#define TYPE_RIDE 1
#define TYPE_REQUEST 2
#define TYPE_RESPONSE 3
#define TYPE_SIZE 4
#define FLAG_DATA_ONE_WAY 1
#define FLAG_UNSOLICITED 1
#define FLAG_REPORT 1
#define FLAG_QUESTION 2 /* a request and its response that are not counted */
#define FLAG_RIDE_ONE_WAY 1
#define FLAG_RIDE_RESPONSE 2
#define FLAG_RIDE_REPORT 4

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

enum probe_kind {
	KIND_REQUEST = 0,
	KIND_RESPONSE = 1,
	KIND_UNSOLICITED = 2,
	KIND_LOOK = 3, /* an event without a probe: the daemon must check the path's state */
	KIND_UNCUT = 4, /* an event without a probe: several packets came unsegmented */
	KIND_SIZE = 5,  /* a packet size test (segue_wire::Size) */
};

/* A probe ordered by the daemon: a packet on the TUN device with MARK_PROBE. It has the length of a probe packet, so
 * that the program only has to prepend headers. */
struct probe_order {
	__u32 slot;
	__u32 held_since;
	__u8 kind;
	__u8 k;
	__u8 swept; /* a response: the one that the path still holds, if its time is up */
	__u8 age;   /* of a request's header */
	__u8 tos;   /* of the outer header */
	__u8 reserved[2];
	__u8 question; /* a request: FLAG_QUESTION */
	struct probe_data probe;
	__u64 reserved_mac;
};

/* A request ordered by the daemon as part of a batch. */
struct batch_order {
	__u32 slot;
	__u16 heard;
	__u16 t_ka_ms;
	__u8 k;
	__u8 age;
	__u8 question;
	__u8 reserved[5];
};

/* The state of a batch that is being sent. All its requests take the same next hop. */
struct batch {
	__u32 next;     /* index of the next order */
	__u32 orders;
	__u8 source[6]; /* addresses of the frames */
	__u8 destination[6];
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

/* A flow and its binding. Slot and generation are read and written as one word, because halves of two bindings would
 * name a third path. Packets and bytes are counted while the flow is known; `elsewhere` and `received_elsewhere` are
 * set at each move, so that their differences from the totals start with the binding. */
struct flow_value {
	__u32 slot;
	__u32 generation; /* of the path: see `generation_of` */
	__u64 packets;
	__u64 bytes;
	__u64 last_seen_ns;
	__u64 received_packets; /* in the other direction */
	__u64 received_bytes;
	__u32 elsewhere; /* of `packets`, those that left on another path than the bound one */
	__u32 received_elsewhere; /* of `received_packets`, those that arrived on another path */
};

/* An entry of `segue_addresses`. An address that was removed from the machine stays with `present` cleared, for paths
 * that still send from it. */
struct local_address {
	__u32 address[4];
	__u32 present;
};

/* The endpoint of a path's packets. `local` is an index into `segue_addresses`; 0 means that no endpoint is known. */
struct endpoint {
	__u32 remote[4];
	__u32 ifindex;
	__u16 remote_port; /* network order */
	__u16 local;
};

enum path_flag {
	PATH_USED = 1,
	PATH_VIA = 2,     /* packets take `via_slot` */
	PATH_ONE_WAY = 4, /* packets that take it are marked so; without PATH_VIA, packets with MARK_OVER take it */
	PATH_QUIET = 8, /* probes without news are not reported to the daemon */
	PATH_RIDES = 16, /* probes may ride on data packets */
	PATH_FOLLOWS_USE = 32, /* a host's daemon is notified when data follow a silence; an anchor answers soon */
	PATH_CHECKSUMS = 64, /* data have a UDP checksum: see `fill_checksum` */
	PATH_DEAF = 128, /* anchor: `silence` is about the downlink only, and counts packets */
};

/* Which end measures: segue_wire::Mode. In the upper bits of `scale`. */
#define MODE_SHIFT 6
#define SCALE_MASK 0x3fU
enum path_mode {
	MODE_BOTH = 0,
	MODE_CLIENT = 1,
	MODE_REPORTS = 2,
	MODE_ROUND_TRIP_LOSS = 3,
};

/* Written only by the daemon. */
struct path_config {
	__u32 owner;
	__u32 tx_index;  /* network order */
	__u64 tx_cookie; /* network order */
	__u64 rx_cookie; /* network order */
	__u64 key0;
	__u64 key1;
	__u32 via_slot;
	__u32 t_ka_us;   /* T_KA */
	__u16 n;         /* probes of a loss interval */
	__u8 flags;      /* enum path_flag */
	__u8 scale;      /* entry of `segue_scales`, and enum path_mode */
	__u16 heard;
	__u8 k;
	__u8 silence;    /* length of the silence when the path was declared down; 0 while it is up */
};

/* The low bits of `silence`, starting at 1, encode a duration of 2^((silence - 1)/8) times this unit, in microseconds;
 * the highest bit distinguishes successive outages without a probe in between. With PATH_DEAF the low bits encode
 * 2^((silence - 1)/8) packets: those sent after the last one that the host is known to have received, until it reported
 * that it hears nothing. */
#define SILENCE_UNIT_US 4000
#define SILENCE_MASK 0x7f
#define SILENCE_TURN 0x80

/* Loss in one direction: counters of all packets, data and counted probes, modulo 2^32. */
struct loss {
	__u32 sent;           /* the last pair */
	__u32 received;
	__u32 start_sent;     /* the pair at the start of the interval */
	__u32 start_received;
	__u16 base_sent;      /* the first pair, truncated to 16 bits */
	__u16 base_received;
	__u32 surplus;        /* packets received in the previous interval beyond those sent */
	__u32 at_us;          /* start of the interval, moved by the times left out of it */
	__u32 average[2];     /* in units of 2^-32 */
};

/* Bits of `known`: the valid parts of `path_state`. */
enum known {
	KNOWN_RTT = 1,
	KNOWN_UP = 2,         /* a pair of counters */
	KNOWN_UP_AVERAGE = 4,
	KNOWN_DOWN = 8,
	KNOWN_DOWN_AVERAGE = 16,
	KNOWN_PEER = 32,      /* a probe arrived, so that `heard` and similar fields can change */
	KNOWN_OUT = 64,       /* a probe arrived since the path was declared down */
	KNOWN_TURN = 128,     /* in which outage: SILENCE_TURN */
};

/* Bits of `crossed`: the thresholds that are exceeded. */
enum crossed {
	CROSSED_RTT = 1,
	CROSSED_UP = 2,
	CROSSED_DOWN = 4,
};

/* `newest`: the sequence number in the low half; above it T_KA in ms, K, the length of the run of consecutive numbers
 * that ends with it, and a bit that is set once there was a number. */
#define NEWEST_T_KA_SHIFT 32
#define NEWEST_K_SHIFT 48
#define NEWEST_RUN_SHIFT 56
#define NEWEST_SEEN (1ULL << 63)
#define RUN_MAX 127

/* `guard`: a count of endpoint changes, odd during a change; whether a response waits for a ride, and the low bits of
 * its number; in the upper half how many responses rode, modulo 2^16. */
#define GUARD_COUNT 0xffU
#define GUARD_NUMBER_SHIFT 8
#define GUARD_NUMBER (0x7fU << GUARD_NUMBER_SHIFT)
#define GUARD_HELD (1U << 15)
#define GUARD_RODE_SHIFT 16

/* Unit of `data_at` and `heard_at`: 2^22 ns, the unit of stated ages. They wrap after 275 s. */
#define TICK_SHIFT 22

/* Silence after which departing or arriving data make the daemon check the path, in nanoseconds:
 * segue_keepalive::SILENCE. */
#define SILENCE_NS 40000000ULL

/* Longest wait of a response for a ride, in microseconds: segue_wire::HELD_AT_MOST_MS. */
#define HELD_AT_MOST_US 24000

/* Written by the programs; cleared by the daemon when a path begins (docs/measured.md). */
struct path_state {
	__u64 tx_bytes;
	__u64 rx_bytes;
	__u32 tx_packets;
	__u32 rx_packets;
	__u64 newest;       /* of the probes that count: requests at an anchor, responses at a host */
	__u64 received_ns;  /* arrival of the last of these probes */
	struct endpoint endpoint; /* an anchor's, learned from requests */
	__u32 guard;
	__u32 received;     /* number of these probes */
	__u16 data_at;      /* anchor: when data last left, for rides; see TICK_SHIFT */
	__u16 heard_at;     /* anchor: when anything last arrived; see TICK_SHIFT */
	__u32 t_sc;         /* anchor: of the newest request */
	__u16 heard;        /* as the peer last reported, in network order */
	__u8 known;
	__u8 crossed;
	__u32 rtt_at_us;    /* when the last RTT was taken */
	__u64 rtt[2];       /* averages of the RTT in units of 2^-32 us */
	__u32 rtt_last_us;
	__u32 rtt_min_us;
	__u32 rtt_max_us;
	__u32 jitter;       /* in units of 2^-4 us */
	struct loss up;     /* client to server; round trip at a server that receives reports */
	struct loss down;
};

/* Copies of the last data sent on a path, in case they did not arrive: segue_keepalive::Copies. In each window of
 * 2^COPY_WINDOW_SHIFT ns the first packets are copied; of a super-packet, the first segment. */
#define COPIES 4
#define COPY_WINDOW_SHIFT 24
#define COPY_MAX 1536
/* Most paths with copies. Their memory is not included in the cost of a path in docs/measured.md. */
#define COPIED_PATHS 4096
struct copy {
	__u64 at_ns;     /* 0 while it is being written */
	__u32 number;
	__u16 len;
	__u16 gso_size;  /* of a super-packet, else 0 */
	__u8 bytes[COPY_MAX];
};
struct copies {
	__u32 next;      /* number of the next; its place is modulo COPIES */
	__u32 reserved;
	struct copy copy[COPIES];
};

/* State that only a host needs: written by the programs, cleared with `path_state`. */
struct host_state {
	__u32 echo_t_ss;   /* of the newest response, for the next request; machine's order */
	__u32 echo_ss;
	__u32 echo_r;
	__u32 held_since;
	__u64 sent_ns;     /* when the last request left */
	__u64 heard_ns;    /* when anything last arrived */
	__u64 responses;   /* bit i: the response to number `newest - i` has arrived */
	__u64 unsolicited; /* the newest unsolicited response, in the format of `newest` */
	__u64 grid_ns;     /* when the last request left on its own: steps of T_KA start here */
	__u64 rode_ns;     /* when a request last rode */
	__u64 watch_ns;    /* when to notify the daemon unless another request rides; 0 if nothing is watched */
	__u32 sent_seq;    /* number of the last request */
	__u32 sent;        /* requests that left, rides included */
	__u32 rode;        /* how many of them rode on data */
	__u32 duplicates;
	__u32 reordered;
	__u32 unreported;  /* loss of the last interval plus one, until a request has reported it; else 0 */
	__u64 data_out_ns; /* when data last left */
	__u64 data_in_ns;  /* when data last arrived */
	__u64 heard_back_ns; /* when the anchor last heard this end, according to the anchor's data */
	struct loss round_trip; /* of probes, in the modes that report it; replaces the loss of packets */
	__u32 data_packets; /* data packets that arrived */
	__u8 known;        /* valid parts of `round_trip`: KNOWN_UP, KNOWN_UP_AVERAGE */
	__u8 reserved[7];
};

/* The destination of a host's packets; written by the daemon. */
struct host_route {
	struct endpoint endpoint;
	__u32 gateway[4];
	__u32 gateway_family; /* 4, 6 or 0 for none */
	__u32 reserved;
};

/* Time constants of the two averages: 2^48/tau, tau in microseconds; all ones for tau = 0. */
struct scale {
	__u64 rise[2];
	__u64 fall[2];
};

/* Destinations that hosts may not reach through an anchor. */
enum denied {
	DENY_HOSTS = 1,
	DENY_ANCHOR = 2, /* everything but ICMP */
	DENY_PING = 4,
	DENY_ROUTED = 8,
};

/* A network of inner addresses. If there is none, `mask` is all zeros and `address` all ones, so that nothing
 * matches. */
struct inner_pool {
	__u32 address[4];
	__u32 mask[4];
};

#define POOLS 2 /* one of each family */

/* The daemon's heartbeat: its time, the clock offset, what hosts may not reach, and the pools of their addresses. */
struct sign_of_life {
	__u64 at_ns;
	__s64 tai_offset_ns; /* of CLOCK_TAI from CLOCK_REALTIME */
	__u64 denied;        /* enum denied */
	struct inner_pool pools[POOLS];
};

/* An Ethernet device with an XDP program, in entry `ifindex % DEVICES_MAX`; written by the daemon. */
#define DEVICES_MAX 64
struct own_device {
	__u32 ifindex;
	__u8 address[6];
	__u8 reserved[2];
};

/* Written by the daemon; the programs count the flows that begin at the address, whichever host has it. */
struct inner_owner {
	__u32 owner; /* at an anchor a host, or 0 for the anchor itself */
	__u32 reserved;
	__u64 paid_ns; /* virtual start of the last flow from this address, if flows were paced */
};

/* Burst of flows that may begin from one inner address, a sixteenth of an anchor's table; and the interval of further
 * flows in nanoseconds: segue_datapath::{FLOWS_AT_ONCE, FLOW_PACE}. */
#define FLOWS_AT_ONCE 65536
#define FLOW_PACE_NS 976562

struct probe_event {
	__u64 at_ns;
	__u32 slot;
	__u32 received;    /* of a packet size test: the outer traffic class */
	__u32 remote[4];
	__u16 remote_port; /* network order */
	__u8 kind;
	__u8 k;
	__u8 family; /* outer, 4 or 6 */
	__u8 flags;  /* of its header, for a request or response on its own */
	__u8 wants;  /* enum event_flag */
	__u8 age;    /* of its header, for a request on its own */
	struct probe_data probe;
};

enum event_flag {
	EVENT_ANSWER = 1, /* the request has not been answered, and must be answered at once */
	EVENT_QUIET = 2,  /* nothing new for the daemon */
};

/* A response that waits for a ride. */
struct held {
	__u32 slot;
	__u32 until_us;
};

#define LOCALS_MAX 4096
#define SCALES_MAX 64 /* `scale` has 6 bits */

/* Metadata from the XDP program to the TC program for a packet that it stripped. */
struct xdp_meta {
	__u32 magic;
	__u32 slot;
	__u32 generation;
	__u32 flags;
};

_Static_assert(sizeof(struct sign_of_life) == 88, "sign of life");
_Static_assert(sizeof(struct tunnel_header) == 16, "tunnel header");
_Static_assert(sizeof(struct probe_data) == 32, "probe");
_Static_assert(sizeof(struct probe_packet) == 56, "probe packet");
_Static_assert(sizeof(struct probe_order) == sizeof(struct probe_packet), "probe order");
_Static_assert(sizeof(struct batch_order) == 16, "order of a batch");
_Static_assert(sizeof(struct batch) == 20, "batch");
_Static_assert(sizeof(struct flow_key) == 44, "flow key");
_Static_assert(sizeof(struct flow_value) == 56, "flow");
_Static_assert(__builtin_offsetof(struct flow_value, generation) == 4, "a binding is one word");
_Static_assert(sizeof(struct local_address) == 20, "local address");
_Static_assert(sizeof(struct endpoint) == 24, "endpoint");
_Static_assert(sizeof(struct path_config) == 56, "path configuration");
_Static_assert(sizeof(struct loss) == 36, "loss");
_Static_assert(sizeof(struct copies) == 8 + COPIES * (16 + COPY_MAX), "copies");
_Static_assert(sizeof(struct path_state) == 192, "path state");
_Static_assert(sizeof(struct host_state) == 168, "a host's state");
_Static_assert(sizeof(struct host_route) == 48, "a host's route");
_Static_assert(sizeof(struct own_device) == 12, "device");
_Static_assert(sizeof(struct inner_owner) == 16, "an inner address");
_Static_assert(sizeof(struct scale) == 32, "time constants");
_Static_assert(sizeof(struct probe_event) == 72, "probe event");
_Static_assert(sizeof(struct xdp_meta) % 4 == 0 && sizeof(struct xdp_meta) <= 32, "metadata");

#endif
