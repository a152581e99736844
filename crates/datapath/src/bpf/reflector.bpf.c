/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* A reflector for machines without tunnels: STAMP on one port, and the compact probe without a key on
 * another (`port`, 0 for none). Other packets pass to the sockets in user space. */
#include <stddef.h>

#include "stamp.bpf.h"

#define PROBE_SESSIONS 10000
#define NUMBERS 32 /* how many of the newest numbers are remembered */

/* A client draws both values at random. */
struct probe_session_id {
	__u64 cookie;
	__u32 index;
	__u32 reserved;
};

struct probe_session {
	/* the newest in the upper half; in the lower half, bit n is set if number newest - n arrived */
	__u64 numbers;
	__u32 received;
	__u32 sent;
};

/* A new session replaces the one with the longest silence. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PROBE_SESSIONS);
	__type(key, struct probe_session_id);
	__type(value, struct probe_session);
} probe_sessions SEC(".maps");

static __always_inline struct probe_session *session_of(const struct tunnel_header *header)
{
	struct probe_session_id id = { .cookie = header->cookie, .index = header->index };
	struct probe_session *session = bpf_map_lookup_elem(&probe_sessions, &id), none = {};

	if (session)
		return session;
	bpf_map_update_elem(&probe_sessions, &id, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&probe_sessions, &id);
}

/* Records a request's number; false if it is a duplicate, or too old to be recognised as one. A second
 * answer would hide a loss in the counters. */
static __always_inline int is_first(struct probe_session *session, __u32 seq)
{
	for (int i = 0; i < 4; i++) {
		__u64 last = *(volatile __u64 *)&session->numbers, next;
		__u32 seen = (__u32)last, behind = (__u32)(last >> 32) - seq, ahead = -behind;

		if (!seen || (__s32)ahead > 0) {
			seen = seen && ahead < NUMBERS ? seen << (ahead & 31) | 1 : 1;
			next = (__u64)seq << 32 | seen;
		} else {
			if (behind >= NUMBERS || seen >> (behind & 31) & 1)
				return 0;
			next = last | 1ULL << (behind & 31);
		}
		if (__sync_val_compare_and_swap(&session->numbers, last, next) == last)
			return 1;
	}
	return 0; /* not answered, like any packet lost on a busy machine */
}

/* Answers a valid request without key and flags. Returns the verdict, or PASS for packets that this
 * program does not handle. */
static __always_inline int answer_probe(struct __sk_buff *skb, const struct stamp_outer *outer)
{
	struct probe_packet request ALIGNED, reply ALIGNED;
	__u64 arrived_ns = bpf_ktime_get_ns();
	struct probe_session *session;
	struct stamp_count *count;
	__u32 zero = 0, now;

	count = bpf_map_lookup_elem(&stamp_counts, &zero);
	if (!count || !stamp_clock_at(arrived_ns) || outer->payload < sizeof(request) ||
	    bpf_skb_load_bytes(skb, outer->at, &request, sizeof(request)) ||
	    request.header.version_type != (HEADER_VERSION << 4 | TYPE_REQUEST) ||
	    request.header.flags || request.header.age ||
	    probe_mac(&request, 0, 0) != request.mac)
		return PASS;
	if (!stamp_permitted(count, outer, arrived_ns))
		return TC_ACT_SHOT;
	session = session_of(&request.header);
	if (!session)
		return TC_ACT_SHOT;
	if (!is_first(session, bpf_ntohl(request.probe.seq))) {
		__sync_fetch_and_add(&count->replayed, 1);
		return TC_ACT_SHOT;
	}
	if (stamp_turn_round(skb, outer))
		return TC_ACT_SHOT;
	reply = request;
	reply.header.version_type = HEADER_VERSION << 4 | TYPE_RESPONSE;
	/* Bit 0: the client is heard. The other bits would state how late answers leave, which is
	 * unknown. */
	reply.probe.heard = bpf_htons(1);
	reply.probe.r = bpf_htonl(__sync_fetch_and_add(&session->received, 1) + 1);
	reply.probe.ss = bpf_htonl(__sync_fetch_and_add(&session->sent, 1) + 1);
	now = stamp_us(bpf_ktime_get_ns());
	reply.probe.t_ss = bpf_htonl(now);
	reply.probe.dt = bpf_htonl(now - stamp_us(arrived_ns));
	reply.mac = probe_mac(&reply, 0, 0);
	__sync_fetch_and_add(&count->probes, 1);
	return stamp_send(skb, outer, &request, &reply, sizeof(reply));
}

static __always_inline int reflect(struct __sk_buff *skb, __u32 link)
{
	struct stamp_outer outer = { .link = link };

	if (!stamp_arrived(skb, &outer))
		return PASS;
	return outer.local_port == stamp_port ? answer_stamp(skb, &outer)
					      : answer_probe(skb, &outer);
}

SEC("tc")
int segue_reflect(struct __sk_buff *skb)
{
	return reflect(skb, ETH_HLEN);
}

/* For interfaces without a frame header. */
SEC("tc")
int segue_reflect_bare(struct __sk_buff *skb)
{
	return reflect(skb, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
