#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| segue_fuzz_targets::run(env!("CARGO_BIN_NAME"), data));
