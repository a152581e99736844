//! Compiles the bench's eBPF programs, generates their Rust skeletons, and compiles its C responder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Objects, by source name: the benchmark of probes, and the stamps of packets that pass a node.
const OBJECTS: [&str; 2] = ["bench", "passage"];
/// Headers of the datapath with the probe's format and authenticator.
const SHARED: &str = "../datapath/src/bpf";
const REFLECTOR: &str = "src/c/reflector.c";

fn main() {
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    // Debian keeps <asm/types.h> in a folder named after the architecture.
    let include = format!("-I/usr/include/{arch}-linux-gnu");
    let libbpf = format!("-I{}", env::var("DEP_BPF_INCLUDE").expect("set by libbpf-sys"));
    let shared = format!("-I{SHARED}");
    for name in OBJECTS {
        SkeletonBuilder::new()
            .source(format!("src/bpf/{name}.bpf.c"))
            .clang_args([
                "-mcpu=v3",
                "-Wall",
                "-Werror",
                "-Wno-address-of-packed-member",
                &include,
                &libbpf,
                &shared,
            ])
            .build_and_generate(directory.join(format!("{name}.skel.rs")))
            .expect("the eBPF programs compile; clang and the kernel's headers are needed");
    }
    reflector(&arch, &directory.join("reflector"));
    println!("cargo::rerun-if-changed={REFLECTOR}");
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed={SHARED}/segue.bpf.h");
    println!("cargo::rerun-if-changed={SHARED}/probe.bpf.h");
}

/// Compiles the C responder with the compiler of the eBPF programs.
fn reflector(arch: &str, out: &Path) {
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let target = format!("--target={arch}-linux-gnu");
    let status = Command::new(clang)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", &target, REFLECTOR, "-o"])
        .arg(out)
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{REFLECTOR} does not compile; clang and the C library's headers are needed"
    );
}
