/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/*
 * TC egress of an access interface, the last hook before its driver. Probes come here from the TUN
 * device, after a route lookup and possibly a neighbour solicitation; this program sets their times
 * to the actual departure. The probes are complete before, and leave unchanged if this program is
 * not reached.
 */
#include "common.bpf.h"
#include "probe.bpf.h"

/* Updates the time of departure, and how long the peer's stamp was held until then. */
static __always_inline void stamp_again(struct probe_packet *packet)
{
	__u8 type = packet->header.version_type & 15;
	int response = type == TYPE_RESPONSE ||
		       (type == TYPE_RIDE && packet->header.flags & FLAG_RIDE_RESPONSE);
	__u32 before = bpf_ntohl(response ? packet->probe.t_ss : packet->probe.t_sc);
	__u32 held = bpf_ntohl(packet->probe.dt), now = stamp_us(bpf_ktime_get_ns());

	if (packet->probe.t_ss) /* otherwise there is nothing to echo yet */
		packet->probe.dt = bpf_htonl(held + (now - before));
	if (response)
		packet->probe.t_ss = bpf_htonl(now);
	else
		packet->probe.t_sc = bpf_htonl(now);
}

SEC("tc")
int segue_leave(struct __sk_buff *skb)
{
	struct probe_packet packet, before;
	__u32 tail = skb->cb[CB_TAIL], at;
	struct path_config *path;
	__s64 change;

	if (skb->cb[CB_MAGIC] != meta_magic || tail < sizeof(packet) ||
	    skb->len < tail + sizeof(struct udphdr))
		return PASS;
	at = skb->len - tail;
	path = path_of(skb->cb[CB_SLOT]);
	if (!path || bpf_skb_load_bytes(skb, at, &before, sizeof(before)) ||
	    before.header.index != path->tx_index || before.header.cookie != path->tx_cookie)
		return PASS; /* not the bytes that were marked, or the slot holds another path by now */
	packet = before;
	stamp_again(&packet);
	packet.mac = probe_mac(&packet, path->key0, path->key1);
	change = bpf_csum_diff((void *)&before, sizeof(before), (void *)&packet, sizeof(packet), 0);
	/* Incremental update, because a ride has no checksum. */
	if (bpf_skb_store_bytes(skb, at, &packet, sizeof(packet), BPF_F_RECOMPUTE_CSUM) ||
	    bpf_l4_csum_replace(skb, at - sizeof(struct udphdr) + offsetof(struct udphdr, check), 0,
				change, BPF_F_MARK_MANGLED_0))
		return drop(DROP_ENCAPSULATION);
	return PASS;
}
