//! Snapshots of windows as text. With `SEGUE_REWRITE_SNAPSHOTS=1` differing files are rewritten, but the test
//! still fails, since it has not compared its results with anything.

use std::path::Path;

/// Expects each text to equal the file with its name in this directory, byte by byte.
pub(crate) fn expect_snapshots(texts: impl IntoIterator<Item = (String, String)>) {
    let rewrite = std::env::var_os("SEGUE_REWRITE_SNAPSHOTS").is_some();
    let mut wrong = Vec::new();
    for (name, text) in texts {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tcp").join(&name);
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        if known == text {
            continue;
        }
        let same = text.lines().zip(known.lines()).take_while(|(found, known)| found == known);
        wrong.push(format!("{name}:{}", same.count() + 1));
        if rewrite {
            std::fs::write(&path, text).expect("the snapshot can be written");
        }
    }
    let what = if rewrite {
        "written anew, look at the differences and run again without SEGUE_REWRITE_SNAPSHOTS"
    } else {
        "other than recorded (SEGUE_REWRITE_SNAPSHOTS=1 writes anew)"
    };
    assert!(wrong.is_empty(), "{what}: {wrong:#?}");
}
