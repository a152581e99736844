//! The eBPF datapath.
