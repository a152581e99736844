//! Compiles the eBPF programs and generates their Rust skeleton.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/segue.bpf.c";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("segue.skel.rs");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    // Debian keeps <asm/types.h> in a folder named after the architecture.
    let include = format!("-I/usr/include/{arch}-linux-gnu");
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Wno-address-of-packed-member", &include])
        .build_and_generate(&out)
        .expect("the eBPF programs compile; clang and libbpf's headers are needed");
    println!("cargo::rerun-if-changed=src/bpf");
}
