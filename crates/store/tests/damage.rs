//! State files with flipped bits.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::path::Path;

use segue_store::{Embedded, Store, StoreError, StoreExt};

const VALUES: u32 = 300;

/// A seeded random number generator (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % bound
    }
}

fn key(n: u32) -> String {
    format!("host-{n}")
}

fn filled(path: &Path) {
    let store = Embedded::open(path).unwrap();
    for n in 0..VALUES {
        store.put_as("bindings", &key(n), &vec![n; 20]).unwrap();
    }
    store.delete("bindings", &key(7)).unwrap();
    store.put_as("starts", "bindings", &3u32).unwrap();
}

/// Uses the state as a role does, and returns the values that it read.
fn used(path: &Path) -> Result<Vec<(String, Vec<u32>)>, StoreError> {
    let store = Embedded::open(path)?;
    store.tables()?;
    let before: Option<u32> = store.get_as("starts", "bindings")?;
    store.put_as("starts", "bindings", &(before.unwrap_or(0) + 1))?;
    let all = store.list_as("bindings")?;
    store.put_as("bindings", "new", &vec![1u32; 50])?;
    store.delete("bindings", &key(9))?;
    Ok(all)
}

#[test]
fn flipped_bits_are_named_with_their_file_and_change_no_value() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    filled(&path);
    let whole = fs::read(&path).unwrap();
    let wanted = used(&path).unwrap();
    let used_bytes = whole.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    let mut damaged = 0;
    for seed in 0..300 {
        let mut draw = Draw(seed);
        let mut bytes = whole.clone();
        for _ in 0..=draw.below(30) {
            let at = draw.below(used_bytes) as usize;
            bytes[at] ^= 1 << draw.below(8);
        }
        fs::write(&path, &bytes).unwrap();
        match used(&path) {
            Ok(values) => assert_eq!(values, wanted, "seed {seed}"),
            Err(error) => {
                damaged += 1;
                assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
                assert!(matches!(error, StoreError::Damaged { .. } | StoreError::Format { .. }));
                assert!(fs::read(&path).unwrap() == bytes, "seed {seed}: the file has changed");
                let read = Embedded::snapshot(&path).map(drop).unwrap_err();
                assert_eq!(read.to_string(), error.to_string());
            }
        }
    }
    assert!(damaged > 100, "{damaged} of 300 files were found damaged");
}

#[test]
fn a_store_in_use_can_be_read_and_is_not_called_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Embedded::open(&path).unwrap();
    store.put_as("starts", "bindings", &3u32).unwrap();
    let read = Embedded::snapshot(&path).unwrap();
    assert_eq!(read.get_as("starts", "bindings").unwrap(), Some(3u32));
    read.put_as("starts", "bindings", &4u32).unwrap();
    assert_eq!(store.get_as("starts", "bindings").unwrap(), Some(3u32));
    assert!(matches!(Embedded::open(&path), Err(StoreError::InUse { .. })));
}
