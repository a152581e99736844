/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* The relay: packets routed to its TUN device go into tunnels or out of links, and packets from tunnels arrive at
 * that device. TC egress of the TUN device, and TC ingress of the interfaces that tunnels use. */
#include <stddef.h>
#include <linux/types.h>

const volatile __u8 label_beside_ports = 0;
#define LABEL_BESIDE_PORTS label_beside_ports

#include "congestion.bpf.h"
#include "relay.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* all sizes are set before loading */
	__type(key, __u32);
	__type(value, struct relay_tunnel);
} relay_tunnels SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct relay_end);
	__type(value, __u32);
} relay_ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct relay_source);
	__type(value, __u32);
} relay_sources SEC(".maps");

/* The checked links: those with at least one source. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} relay_links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow_key);
	__type(value, struct relay_exit);
} relay_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct relay_prefix);
	__type(value, struct relay_exit);
} relay_prefixes SEC(".maps");

/* Counters of host prefixes, each stored as a prefix of destinations. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct relay_prefix);
	__type(value, struct relay_count);
} relay_counts SEC(".maps");

/* enum relay_counted. Set before loading, so that code of disabled counters is removed. */
const volatile __u32 counted = COUNT_NOTHING;

/* Packets passed to user space from each queue, and how many of them it has given back or dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} relay_passed SEC(".maps"), relay_returned SEC(".maps");

/* The node's own addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct inner_key);
	__type(value, __u32);
} relay_locals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} relay_messages SEC(".maps");

/* Makes libbpf-cargo also generate the Rust types that no map uses. */
const volatile enum relay_form type_of_form = FORM_IP;
const volatile enum relay_direction type_of_direction = RELAY_TO;
const volatile enum relay_exit_kind type_of_exit = EXIT_NONE;
const volatile enum relay_counted type_of_counted = COUNT_NOTHING;
const volatile struct relay_message type_of_message = {};
const volatile enum order_mark type_of_mark = MARK_AGAIN;

#include "relay_optimized.bpf.h"
#include "relay_out.bpf.h"
#include "relay_in.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
