//! Compiles the eBPF programs of the bench and generates their Rust skeleton.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/bench.bpf.c";
/// The probe's format and authenticator are the datapath's own.
const SHARED: &str = "../datapath/src/bpf";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("bench.skel.rs");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    // Debian keeps <asm/types.h> in a folder named after the architecture.
    let include = format!("-I/usr/include/{arch}-linux-gnu");
    let shared = format!("-I{SHARED}");
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Wno-address-of-packed-member"])
        .clang_args([&include, &shared])
        .build_and_generate(&out)
        .expect("the eBPF programs compile; clang and libbpf's headers are needed");
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed={SHARED}/segue.bpf.h");
    println!("cargo::rerun-if-changed={SHARED}/probe.bpf.h");
}
