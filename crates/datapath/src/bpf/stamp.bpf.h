/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * STAMP (RFC 8762): answers unauthenticated requests without extensions in place. All other requests,
 * notably those with HMAC or the extensions of RFC 8972, pass to the reflector's socket in user space,
 * which also provides the time of day to these programs.
 */
#ifndef SEGUE_STAMP_H
#define SEGUE_STAMP_H

#include "answer.bpf.h"

#define NTP_OFFSET_S 2208988800ULL /* seconds from 1900 to 1970 */
#define NS_PER_S 1000000000ULL
#define STAMP_TTL 255
#define STAMP_SESSIONS 10000
#define STAMP_SOURCES 8192
#define SENDER_PORTS 1024 /* lowest port of a session sender */

const volatile __u16 stamp_port = 0;  /* network order; 0: answer nothing */
const volatile __u8 stamp_stateful = 0;
const volatile __u32 stamp_rate = 0;  /* answers in a second, in total */
const volatile __u32 stamp_source_rate = 0; /* answers in a second to one source */
const volatile __u8 stamp_class = 0;  /* bits of the request's traffic class that its answer keeps */

/* The base packet of both ends. Network order. */
struct stamp_packet {
	__u32 seq;
	__u32 timestamp[2]; /* T3; in a request T1 */
	__u16 error;
	__u16 ssid;
	__u32 receive[2];   /* T2 */
	__u32 sender_seq;
	__u32 sender_timestamp[2];
	__u16 sender_error;
	__u16 reserved;
	__u8 sender_ttl;
	__u8 reserved2[3];
};

/* Written by user space every second. */
struct stamp_clock {
	__u64 at_ns;     /* time of writing, monotonic clock */
	__u64 offset_ns; /* realtime clock minus monotonic clock */
	__u16 error;     /* Error Estimate, network order */
	__u8 reserved[6];
};

/* Written by the program. */
struct stamp_count {
	__u64 answered;
	__u64 limited;
	__u64 second_ns; /* start of the current second */
	__u64 in_second; /* requests in the current second */
	__u64 probes;    /* answers to compact probes */
	__u64 replayed;  /* duplicate compact probes */
};

/* The unit of the rate limit per source: an IPv4 address, or an IPv6 network of 64 bits. */
struct stamp_source {
	__u32 prefix[2];
};

struct stamp_second {
	__u64 second_ns; /* as in stamp_count */
	__u64 in_second;
};

struct stamp_session {
	__u32 remote[4];
	__u32 local[4];
	__u16 remote_port; /* network order */
	__u16 ssid;        /* network order */
};

_Static_assert(sizeof(struct stamp_packet) == 44, "STAMP packet");
_Static_assert(sizeof(struct stamp_clock) == 24, "clock");
_Static_assert(sizeof(struct stamp_count) == 48, "counters");
_Static_assert(sizeof(struct stamp_session) == 36, "session");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stamp_clock);
} stamp_clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stamp_count);
} stamp_counts SEC(".maps");

/* Answers sent in each session. A new session replaces the one with the longest silence. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STAMP_SESSIONS);
	__type(key, struct stamp_session);
	__type(value, __u32);
} stamp_sessions SEC(".maps");

/* A new source replaces the one with the longest silence and starts with its full rate: the total rate
 * limits what many sources can cause together. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STAMP_SOURCES);
	__type(key, struct stamp_source);
	__type(value, struct stamp_second);
} stamp_sources SEC(".maps");

struct stamp_outer {
	struct stamp_session session;
	__u32 link;    /* bytes of the frame header before the IP header */
	__u32 at;      /* offset of the UDP payload */
	__u32 payload; /* its length according to the UDP header */
	__u16 local_port; /* network order */
	__u8 family;
	__u8 ttl;
};

/* Reads up to and including the UDP header; true if the packet is a datagram for either port of the
 * reflector. `outer` must be all zero except for `link`. */
static __always_inline int stamp_read(struct __sk_buff *skb, struct stamp_outer *outer)
{
	struct udphdr udp;
	__u32 udp_at;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)) || ip.ihl != 5 ||
		    ip.protocol != IPPROTO_UDP || ip.frag_off & bpf_htons(FRAGMENT_MASK))
			return 0;
		map_v4(outer->session.local, ip.daddr);
		map_v4(outer->session.remote, ip.saddr);
		outer->family = 4;
		outer->ttl = ip.ttl;
		udp_at = outer->link + sizeof(ip);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_UDP)
			return 0;
		copy_address(outer->session.local, ip.daddr.s6_addr32);
		copy_address(outer->session.remote, ip.saddr.s6_addr32);
		outer->family = 6;
		outer->ttl = ip.hop_limit;
		udp_at = outer->link + sizeof(ip);
	} else {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, udp_at, &udp, sizeof(udp)) || !udp.dest ||
	    (udp.dest != stamp_port && udp.dest != port))
		return 0;
	outer->local_port = udp.dest;
	outer->session.remote_port = udp.source;
	outer->at = udp_at + sizeof(udp);
	outer->payload = bpf_ntohs(udp.len);
	if (outer->payload < sizeof(udp) || udp_at + outer->payload > skb->len)
		return 0;
	outer->payload -= sizeof(udp);
	return 1;
}

/* True if answering could cause an endless loop: the source is another reflector, or a service that
 * answers everything (echo, chargen). */
static __always_inline int stamp_may_loop(__u16 remote_port)
{
	return bpf_ntohs(remote_port) < SENDER_PORTS || remote_port == stamp_port;
}

/* True if the bytes after the base packet are padding and not extensions: see
 * segue_wire::stamp::tlv::is_padding. */
static __always_inline int stamp_is_padded(struct __sk_buff *skb, const struct stamp_outer *outer)
{
	__u8 type;

	if (outer->payload < sizeof(struct stamp_packet) + 4)
		return 1;
	return !bpf_skb_load_bytes(skb, outer->at + sizeof(struct stamp_packet) + 1, &type, 1) && !type;
}

static __always_inline void stamp_time(__u32 to[2], __u64 realtime_ns)
{
	to[0] = bpf_htonl((__u32)(realtime_ns / NS_PER_S + NTP_OFFSET_S));
	to[1] = bpf_htonl((__u32)((((realtime_ns % NS_PER_S) << 32) + NS_PER_S - 1) / NS_PER_S));
}

static __always_inline __u32 stamp_number(struct stamp_session *session, __u32 sender_seq)
{
	__u32 first = 1, *sent;

	if (!stamp_stateful)
		return sender_seq;
	sent = bpf_map_lookup_elem(&stamp_sessions, session);
	if (sent)
		return bpf_htonl(__sync_fetch_and_add(sent, 1));
	bpf_map_update_elem(&stamp_sessions, session, &first, BPF_ANY);
	return 0;
}

/* Swaps source and destination, including the ports, which leaves the UDP checksum unchanged. */
static __always_inline int stamp_turn_round(struct __sk_buff *skb, const struct stamp_outer *outer)
{
	__u16 ports[2] = { outer->local_port, outer->session.remote_port };

	if (outer->link && turn_frame_round(skb))
		return -1;
	if (outer->family == 4) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)))
			return -1;
		ip.saddr = outer->session.local[3];
		ip.daddr = outer->session.remote[3];
		ip.ttl = STAMP_TTL;
		ip.tos &= stamp_class;
		ip.check = 0;
		ip.check = ipv4_checksum(&ip);
		if (bpf_skb_store_bytes(skb, outer->link, &ip, sizeof(ip), 0))
			return -1;
	} else {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, outer->link, &ip, sizeof(ip)))
			return -1;
		copy_address(ip.saddr.s6_addr32, outer->session.local);
		copy_address(ip.daddr.s6_addr32, outer->session.remote);
		ip.hop_limit = STAMP_TTL;
		*(__be32 *)&ip &= bpf_htonl(0xf00fffff | (__u32)stamp_class << 20);
		if (bpf_skb_store_bytes(skb, outer->link, &ip, sizeof(ip), 0))
			return -1;
	}
	return bpf_skb_store_bytes(skb, outer->at - sizeof(struct udphdr), ports, sizeof(ports), 0);
}

/* Counts a request in the current second; false if `rate` is exceeded. */
static __always_inline int stamp_within(__u64 *second_ns, __u64 *in_second, __u32 rate, __u64 now_ns)
{
	if (now_ns - *second_ns >= NS_PER_S) {
		*second_ns = now_ns;
		*in_second = 0;
	}
	return __sync_fetch_and_add(in_second, 1) < rate;
}

/* Checks the source's rate first, so that an excessive source does not use up the total rate. */
static __always_inline int stamp_permitted(struct stamp_count *count,
					   const struct stamp_outer *outer, __u64 now_ns)
{
	struct stamp_second first = { .second_ns = now_ns }, *second;
	struct stamp_source source = {};

	if (outer->family == 4) {
		source.prefix[1] = outer->session.remote[3];
	} else {
		source.prefix[0] = outer->session.remote[0];
		source.prefix[1] = outer->session.remote[1];
	}
	second = bpf_map_lookup_elem(&stamp_sources, &source);
	if (!second) {
		bpf_map_update_elem(&stamp_sources, &source, &first, BPF_NOEXIST);
		second = bpf_map_lookup_elem(&stamp_sources, &source);
	}
	if ((!second || stamp_within(&second->second_ns, &second->in_second, stamp_source_rate,
				     now_ns)) &&
	    stamp_within(&count->second_ns, &count->in_second, stamp_rate, now_ns))
		return 1;
	__sync_fetch_and_add(&count->limited, 1);
	return 0;
}

/* The clock; null if it is no longer updated, in which case the program behaves as if it were absent. */
static __always_inline struct stamp_clock *stamp_clock_at(__u64 now_ns)
{
	__u32 zero = 0;
	struct stamp_clock *clock = bpf_map_lookup_elem(&stamp_clocks, &zero);

	return clock && (__s64)(now_ns - clock->at_ns) <= (__s64)HEARTBEAT_TIMEOUT_NS ? clock : 0;
}

/* Writes `reply` over `request`, which starts the payload, and sends the packet back where it came
 * from. The checksum is updated incrementally: correct whether it is complete, left to the device, or
 * absent. */
static __always_inline int stamp_send(struct __sk_buff *skb, const struct stamp_outer *outer,
				      void *request, void *reply, const __u32 size)
{
	__u32 checksum_at = outer->at - sizeof(struct udphdr) + offsetof(struct udphdr, check);
	__s64 change = bpf_csum_diff(request, size, reply, size, 0);

	if (bpf_skb_store_bytes(skb, outer->at, reply, size, BPF_F_RECOMPUTE_CSUM) ||
	    bpf_l4_csum_replace(skb, checksum_at, 0, change, BPF_F_MARK_MANGLED_0))
		return TC_ACT_SHOT;
	skb->mark = mark;
	return bpf_redirect(skb->ifindex, 0);
}

/* Answers a STAMP request. Returns the verdict, or PASS for packets that this program does not answer. */
static __always_inline int answer_stamp(struct __sk_buff *skb, struct stamp_outer *outer)
{
	struct stamp_packet request, reply = {};
	__u64 arrived_ns = bpf_ktime_get_ns();
	struct stamp_clock *clock = stamp_clock_at(arrived_ns);
	struct stamp_count *count;
	__u32 zero = 0;

	count = bpf_map_lookup_elem(&stamp_counts, &zero);
	if (!clock || !count || outer->payload < sizeof(request) ||
	    stamp_may_loop(outer->session.remote_port) || !stamp_is_padded(skb, outer) ||
	    bpf_skb_load_bytes(skb, outer->at, &request, sizeof(request)))
		return PASS;
	if (!stamp_permitted(count, outer, arrived_ns))
		return TC_ACT_SHOT;
	outer->session.ssid = request.ssid;
	reply.seq = stamp_number(&outer->session, request.seq);
	reply.error = clock->error;
	reply.ssid = request.ssid;
	stamp_time(reply.receive, arrived_ns + clock->offset_ns);
	reply.sender_seq = request.seq;
	reply.sender_timestamp[0] = request.timestamp[0];
	reply.sender_timestamp[1] = request.timestamp[1];
	reply.sender_error = request.error;
	reply.sender_ttl = outer->ttl;
	if (stamp_turn_round(skb, outer))
		return TC_ACT_SHOT;
	stamp_time(reply.timestamp, bpf_ktime_get_ns() + clock->offset_ns);
	__sync_fetch_and_add(&count->answered, 1);
	return stamp_send(skb, outer, &request, &reply, sizeof(reply));
}

/* Reads a datagram after `outer->link` bytes of frame header; true if it is for this machine and one of
 * the reflector's ports. */
static __always_inline int stamp_arrived(struct __sk_buff *skb, struct stamp_outer *outer)
{
	return !skb->gso_size && skb->pkt_type != 3 /* PACKET_OTHERHOST */ &&
	       stamp_read(skb, outer) && local_id(outer->session.local);
}

#endif
