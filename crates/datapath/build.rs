//! Compiles the eBPF programs and generates their Rust skeletons.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

/// The eBPF objects by the names of their sources: the tunnel's datapath, the relay, the stand-alone STAMP reflector,
/// and the programs that send over one access.
const OBJECTS: [&str; 4] = ["segue", "relay", "reflector", "access"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    // Debian keeps <asm/types.h> in a folder named after the architecture.
    let include = format!("-I/usr/include/{arch}-linux-gnu");
    let libbpf = format!("-I{}", env::var("DEP_BPF_INCLUDE").expect("set by libbpf-sys"));
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
            ])
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .expect("the eBPF programs compile; clang and the kernel's headers are needed");
    }
    println!("cargo::rerun-if-changed=src/bpf");
}
