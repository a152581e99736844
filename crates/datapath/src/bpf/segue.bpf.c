/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* The programs of the datapath, in one object because they share maps. */
#include <stddef.h>

#include "stamp.bpf.c"
#include "egress.bpf.c"
#include "leave.bpf.c"
#include "ingress.bpf.c"
#include "xdp.bpf.c"
#include "batch.bpf.c"
#include "trace.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
