/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* The programs of the packet path, in one object because they share their maps. */
#include <stddef.h>

#include "egress.bpf.c"
#include "ingress.bpf.c"
#include "xdp.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
