/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* Maps of paths, settings fixed at load time, and code shared by every hook at a tunnel's end. */
#ifndef SEGUE_COMMON_H
#define SEGUE_COMMON_H

#include "node.bpf.h"

#define ARRIVAL_AGE_MAX_NS 1000000000LL
#define barrier() asm volatile("" ::: "memory")

const volatile __u16 port = 0;       /* network order */
const volatile __u8 is_anchor = 0;
const volatile __u32 meta_magic = 0; /* random, to recognise our own metadata among those of other programs */
const volatile __u64 challenge_key[2] = {}; /* random and secret */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_config);
} segue_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE); /* the daemon reads it without system calls */
	__type(key, __u32);
	__type(value, struct path_state);
} segue_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_state);
} segue_host SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_route);
} segue_routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCALES_MAX);
	__type(key, __u32);
	__type(value, struct scale);
} segue_scales SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow_key);
	__type(value, struct flow_value);
} segue_flows SEC(".maps");

/* Indexed by slot modulo COPIED_PATHS: the window of the last departing data, modulo 2^29, and in the low 3 bits
 * how many packets of this window were copied. Paths that share an entry get fewer copies. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COPIED_PATHS);
	__type(key, __u32);
	__type(value, __u32);
} segue_copied SEC(".maps");

/* Keyed by slot. The daemon creates the entries. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct copies);
} segue_copies SEC(".maps");

/* The machine's own addresses, each with its number. Packets to other addresses are not ours, whatever their
 * port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCALS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct inner_key);
	__type(value, __u32);
} segue_locals SEC(".maps");

/* The machine's own addresses by number; number 0 is unused. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCALS_MAX + 1);
	__type(key, __u32);
	__type(value, struct local_address);
} segue_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct inner_key);
	__type(value, struct inner_owner);
} segue_inner SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} segue_events SEC(".maps");

/* Makes libbpf-cargo also generate the Rust types that no map uses. */
const volatile struct probe_order type_of_order = {};
const volatile struct probe_event type_of_event = {};
const volatile enum order_mark type_of_mark = MARK_PROBE;
const volatile enum path_flag type_of_flag = PATH_USED;
const volatile enum path_mode type_of_mode = MODE_BOTH;
const volatile enum probe_kind type_of_kind = KIND_REQUEST;
const volatile struct held type_of_held = {};
const volatile enum event_flag type_of_event_flag = EVENT_ANSWER;
const volatile enum known type_of_known = KNOWN_RTT;
const volatile enum heartbeat type_of_heartbeat = HEARTBEAT_TIMEOUT_S;
const volatile enum denied type_of_denied = DENY_HOSTS;

/* Arrival time of a packet: the kernel's timestamp if there is one, taken before the packet waited for this
 * processor; otherwise the current time. The timestamp is wall-clock time, so only its age is used. */
static __always_inline __u64 arrival_ns(struct __sk_buff *skb)
{
	__u64 now_ns = bpf_ktime_get_ns(), stamp_ns = skb->tstamp;
	__u32 zero = 0;
	struct sign_of_life *alive = bpf_map_lookup_elem(&segue_alive, &zero);
	__s64 age_ns;

	if (!stamp_ns || !alive)
		return now_ns;
	age_ns = bpf_ktime_get_tai_ns() - alive->tai_offset_ns - stamp_ns;
	/* Larger ages mean that the wall clock was set, or that another program wrote the timestamp. */
	return age_ns > 0 && age_ns < ARRIVAL_AGE_MAX_NS ? now_ns - age_ns : now_ns;
}

static __always_inline struct path_config *path_of(__u32 slot)
{
	struct path_config *path = bpf_map_lookup_elem(&segue_paths, &slot);

	return path && path->flags & PATH_USED ? path : 0;
}

static __always_inline __u8 mode_of(const struct path_config *path)
{
	return path->scale >> MODE_SHIFT;
}

/* Distinguishes a path from its predecessors in the slot: the second half of the cookie in its packets (network
 * order), which is drawn at random for each path. */
static __always_inline __u32 generation_of(__u64 rx_cookie)
{
	return rx_cookie >> 32;
}

static __always_inline __u64 binding(__u32 slot, __u32 generation)
{
	return (__u64)generation << 32 | slot;
}

static __always_inline struct path_state *state_of(__u32 slot)
{
	return bpf_map_lookup_elem(&segue_state, &slot);
}

static __always_inline struct host_state *host_of(__u32 slot)
{
	return bpf_map_lookup_elem(&segue_host, &slot);
}

/* Both addresses of a path, in the form used in packets. */
struct outer_ends {
	__u32 local[4];
	__u32 remote[4];
	__u32 ifindex;
	__u16 remote_port; /* network order */
	__u8 family;       /* 4 or 6 */
};

/* The number of a local address, 0 if it is not local. */
static __always_inline __u32 local_id(const __u32 address[4])
{
	__u32 *id = bpf_map_lookup_elem(&segue_locals, address);

	return id ? *id : 0;
}

/* Same as `local_id`, but tries the number `guess` first, which is cheap: most packets of a path arrive at the
 * same address. */
static __always_inline __u32 local_id_near(const __u32 address[4], __u16 guess)
{
	__u32 id = guess;
	struct local_address *local = bpf_map_lookup_elem(&segue_addresses, &id);

	if (local && local->present && same_address(local->address, address))
		return id;
	return local_id(address);
}

/* The current endpoint of a path, never half written; returns 0 if it is known. This relies on ordered loads, as
 * on all common processors; on others, a packet that leaves within nanoseconds of a change may be misdirected. */
static __always_inline int read_endpoint(__u32 slot, struct path_state *state,
					 struct endpoint *to)
{
	struct host_route *route;
	__u32 before;

	if (!is_anchor) {
		route = bpf_map_lookup_elem(&segue_routes, &slot);
		if (!route)
			return -1;
		*to = route->endpoint;
		return 0;
	}
	for (int i = 0; i < 4; i++) {
		before = *(volatile __u32 *)&state->guard & GUARD_COUNT;
		barrier();
		*to = state->endpoint;
		barrier();
		if (!(before & 1) && before == (*(volatile __u32 *)&state->guard & GUARD_COUNT))
			return 0;
	}
	return -1;
}

/* The outer addresses for packets of a path; returns 0 if they are known. */
static __always_inline int ends_of(__u32 slot, struct path_state *state, struct outer_ends *ends)
{
	struct local_address *local;
	struct endpoint to;
	__u32 id;

	if (read_endpoint(slot, state, &to) || !to.local || !to.ifindex)
		return -1;
	id = to.local;
	local = bpf_map_lookup_elem(&segue_addresses, &id);
	if (!local)
		return -1;
	copy_address(ends->local, local->address);
	copy_address(ends->remote, to.remote);
	ends->ifindex = to.ifindex;
	ends->remote_port = to.remote_port;
	ends->family = is_mapped(to.remote) ? 4 : 6;
	return 0;
}

/* Fills in the headers before the tunnel header. `payload` is the length of the UDP payload. */
static __always_inline void fill_v4(struct iphdr *ip, struct udphdr *udp,
				    const struct outer_ends *to, __u8 tos, __u32 payload)
{
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = tos;
	ip->tot_len = bpf_htons(payload + sizeof(*ip) + sizeof(*udp));
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = TTL;
	ip->protocol = IPPROTO_UDP;
	ip->saddr = to->local[3];
	ip->daddr = to->remote[3];
	ip->check = ipv4_checksum(ip);
	udp->source = port;
	udp->dest = to->remote_port;
	udp->len = bpf_htons(payload + sizeof(*udp));
}

static __always_inline void fill_v6(struct ipv6hdr *ip, struct udphdr *udp,
				    const struct outer_ends *to, __u8 tos, __u32 payload)
{
	*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)tos << 20);
	ip->payload_len = bpf_htons(payload + sizeof(*udp));
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = TTL;
	copy_address(ip->saddr.s6_addr32, to->local);
	copy_address(ip->daddr.s6_addr32, to->remote);
	udp->source = port;
	udp->dest = to->remote_port;
	udp->len = bpf_htons(payload + sizeof(*udp));
}

/* Words of a packet's control block by which `segue_leave` recognises a probe. Only the kernel and programs can
 * write them. */
enum {
	CB_MAGIC,
	CB_SLOT,
	CB_TAIL, /* bytes from the tunnel header to the packet's end */
};

static __always_inline void mark_probe(struct __sk_buff *skb, __u32 slot, __u32 tail)
{
	skb->cb[CB_MAGIC] = meta_magic;
	skb->cb[CB_SLOT] = slot;
	skb->cb[CB_TAIL] = tail;
}

static __always_inline int send_to(__u32 slot, __u32 ifindex)
{
	struct host_route *route = bpf_map_lookup_elem(&segue_routes, &slot);
	struct bpf_redir_neigh next = {};

	if (is_anchor || !route || !route->gateway_family)
		return bpf_redirect_neigh(ifindex, 0, 0, 0);
	if (route->gateway_family == 4) {
		next.nh_family = FAMILY_INET;
		next.ipv4_nh = route->gateway[3];
	} else {
		next.nh_family = FAMILY_INET6;
		copy_address(next.ipv6_nh, route->gateway);
	}
	return bpf_redirect_neigh(ifindex, &next, sizeof(next), 0);
}

#endif
