//! The eBPF datapath.
#[allow(missing_docs, clippy::all, clippy::pedantic, unsafe_op_in_unsafe_fn)]
mod skel { include!(concat!(env!("OUT_DIR"), "/segue.skel.rs")); }
