/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0-only */
/* The STAMP reflector alone, for a machine that has no tunnels. */
#include <stddef.h>

#include "stamp.bpf.c"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
