//! Runs every stored input of every fuzz target, without the fuzzer.

use std::fs;
use std::path::Path;

#[test]
fn every_kept_input_of_every_target_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in segue_fuzz_targets::ALL.iter().copied() {
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
fn the_fuzzer_has_a_program_and_inputs_for_every_target_and_no_other() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut expected: Vec<&str> = segue_fuzz_targets::ALL.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("its manifest");
    let manifest: toml::Table = manifest.parse().expect("a manifest");
    let programs = manifest["bin"].as_array().expect("a list of programs").iter();
    let mut programs: Vec<&str> = programs.filter_map(|bin| bin["name"].as_str()).collect();
    programs.sort_unstable();
    assert_eq!(programs, expected);
    let files = fs::read_dir(fuzz.join("corpus")).expect("the fuzzer's directory");
    let mut inputs: Vec<String> = files
        .map(|file| file.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    inputs.sort_unstable();
    assert_eq!(inputs, expected);
}
