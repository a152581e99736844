/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* For tests, and loaded only by tests: feeds the probes of a trace, on its virtual time, to the state
 * of path 0, through the same functions as arriving probes. */
#include "arrive.bpf.h"

struct trace_step {
	__u64 at_ns;
	__u32 received;
	__u32 sent; /* requests that have left, at a host */
	struct probe_packet packet;
};

/* 0: accepted; 1: accepted as late; -1: refused. At a client, a request is one that is about to leave,
 * after `sent` others. */
SEC("?syscall")
int segue_trace(struct trace_step *step)
{
	__u64 at_ns = step->at_ns, last;
	struct probe_packet packet = step->packet;
	__u32 seq = bpf_ntohl(packet.probe.seq), received = step->received;
	struct path_config *path = path_of(0);
	struct path_state *state = state_of(0);
	struct host_state *host = host_of(0);
	int order;

	if (!path || !state || !host)
		return -2;
	if (is_anchor) {
		if (!is_newer(&state->newest, seq, &packet, &last))
			return -1;
		take_request(state, path, at_ns, received, &packet);
		return 0;
	}
	host->sent_seq = step->sent;
	host->sent = step->sent;
	if ((packet.header.version_type & 15) == TYPE_REQUEST) {
		measure_sending(state, host, path, at_ns, 0);
		host->sent_ns = at_ns;
		return 0;
	}
	order = place_response(state, host, seq, &packet, &last);
	if (order >= 0)
		take_response(state, host, path, at_ns, received, &packet, order);
	return order;
}
