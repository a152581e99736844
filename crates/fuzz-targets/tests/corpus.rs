//! Every kept input of every fuzz target, without the fuzzer.

use std::fs;
use std::path::Path;

#[test]
fn every_kept_input_of_every_target_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in segue_fuzz_targets::ALL {
        let mut inputs = 0;
        for entry in fs::read_dir(corpus.join(name)).unwrap_or_else(|e| panic!("{name}: {e}")) {
            let path = entry.expect("a readable directory").path();
            let data = fs::read(&path).expect("a readable input");
            eprintln!("{name}: {}", path.display());
            target(&data);
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no inputs");
        target(&[]);
    }
}

#[test]
fn the_fuzzer_has_a_file_for_every_target_and_no_other() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut expected: Vec<&str> = segue_fuzz_targets::ALL.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    for directory in ["fuzz_targets", "corpus"] {
        let files = fs::read_dir(fuzz.join(directory)).expect("the fuzzer's directory");
        let mut found: Vec<String> = files
            .map(|file| file.expect("readable").path())
            .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{directory}");
    }
}
