//! `segue sim dumbbell` beside ns-2 (Debian's package `ns2`), where that can be installed.

use std::path::Path;
use std::process::Command;

#[test]
fn every_variant_of_ns_2_gives_the_same_goodput_within_3_percent() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if Command::new("ns").arg("/dev/null").output().is_err() {
        eprintln!("skipped: ns-2 is missing (Debian: apt-get install ns2)");
        return;
    }
    let output = Command::new(root.join("scripts/compare-ns2"))
        .args(["--quick", "--segue", env!("CARGO_BIN_EXE_segue")])
        .output()
        .expect("the script runs");
    let (table, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{table}{errors}");
    for variant in ["tahoe", "reno", "newreno", "sack", "fack", "vegas"] {
        let rows = table.lines().filter(|line| line.split_whitespace().next() == Some(variant));
        assert!(rows.count() >= 5, "{variant} is missing:\n{table}");
    }
}
