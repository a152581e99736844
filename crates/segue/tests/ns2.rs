//! `segue sim dumbbell` compared with ns-2 (Debian's package `ns2`), if that can be installed.

use std::path::Path;
use std::process::Command;

#[test]
fn every_variant_of_ns_2_gives_the_same_goodput_within_the_limits_of_the_script() {
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
    // Two, five, eight and fourteen consecutive losses each second, in both profiles.
    for variant in ["tahoe", "reno", "newreno", "sack", "fack"] {
        for profile in ["ns-2.35", "ns-2-2001"] {
            let rows = table.lines().filter(|line| {
                let cells: Vec<&str> = line.split_whitespace().collect();
                cells[..2] == [variant, profile] && cells[8] == "0.5"
            });
            assert_eq!(rows.count(), 4, "{variant}, {profile}:\n{table}");
        }
    }
}
