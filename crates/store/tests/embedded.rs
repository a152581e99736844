//! The embedded store, through its trait.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use segue_store::{Condition, Embedded, Store, StoreError, StoreExt, Write};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Registration {
    name: String,
    index: u32,
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/state.redb");
    let wanted = Registration { name: "laptop".into(), index: 7 };
    let store = Embedded::open(&path).unwrap();
    store.put_as("registrations", "a", &wanted).unwrap();
    store.put("registrations", "gone", b"x").unwrap();
    store.delete("registrations", "gone").unwrap();
    drop(store);

    let store = Embedded::open(&path).unwrap();
    assert_eq!(store.get_as("registrations", "a").unwrap(), Some(wanted));
    assert_eq!(store.get("registrations", "gone").unwrap(), None);
    assert_eq!(store.get("no such table", "a").unwrap(), None);
    assert_eq!(store.list("no such table").unwrap(), []);
}

#[test]
fn file_and_directory_are_closed_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("segue/state.redb");
    drop(Embedded::open(&path).unwrap());
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&path), 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(Embedded::open(&path).unwrap());
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_key_is_taken_once() {
    let (_directory, store) = fresh();
    assert!(store.put_if_absent("leases", "10.0.0.2", b"host 1").unwrap());
    assert!(!store.put_if_absent("leases", "10.0.0.2", b"host 2").unwrap());
    assert_eq!(store.get("leases", "10.0.0.2").unwrap().unwrap(), b"host 1");
}

#[test]
fn a_transaction_happens_wholly_or_not_at_all() {
    let (_directory, store) = fresh();
    store.put("t", "a", b"1").unwrap();
    let move_a_to_b = [
        Write::Delete { table: "t", key: "a" },
        Write::Put { table: "u", key: "b", value: b"1", lifetime: None },
    ];
    let a_holds = |value| Condition::Holds { table: "t", key: "a", value };
    assert!(!store.transact(&[a_holds(b"2")], &move_a_to_b).unwrap());
    assert_eq!(store.list("t").unwrap(), [("a".into(), b"1".to_vec())]);
    assert_eq!(store.list("u").unwrap(), []);
    let b_absent = Condition::Absent { table: "u", key: "b" };
    assert!(store.transact(&[a_holds(b"1"), b_absent], &move_a_to_b).unwrap());
    assert!(!store.transact(&[b_absent], &move_a_to_b).unwrap());
    assert_eq!(store.list("t").unwrap(), []);
    assert_eq!(store.list("u").unwrap(), [("b".into(), b"1".to_vec())]);
}

#[test]
fn a_value_vanishes_with_its_lifetime_and_frees_its_key() {
    let (directory, store) = fresh();
    store.put_for("leases", "short", &1u32, Duration::ZERO).unwrap();
    store.put_for("leases", "long", &2u32, Duration::from_secs(3600)).unwrap();
    store.put_for("leases", "endless", &3u32, Duration::MAX).unwrap();
    assert_eq!(store.get_as::<u32>("leases", "short").unwrap(), None);
    let left = store.list_as::<u32>("leases").unwrap();
    let wanted = [("endless".into(), 3), ("long".into(), 2)];
    assert_eq!(left, wanted);
    drop(store);
    let store = Embedded::open(&directory.path().join("state.redb")).unwrap();
    assert_eq!(store.list_as::<u32>("leases").unwrap(), wanted);
    assert!(store.put_if_absent("leases", "short", b"x").unwrap());
}

#[test]
fn a_second_user_is_told_who_is_there() {
    let (directory, _store) = fresh();
    let error = Embedded::open(&directory.path().join("state.redb")).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    assert!(error.to_string().starts_with("another segue uses /"), "{error}");
}

#[test]
fn a_damaged_file_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    for bytes in [b"not a database".to_vec(), vec![0; 10_000], vec![0xa5; 100_000]] {
        fs::write(&path, &bytes).unwrap();
        let error = Embedded::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_it() {
    let (_directory, store) = fresh();
    store.put("t", "k", &[0xff; 3]).unwrap();
    let error = store.get_as::<Registration>("t", "k").unwrap_err();
    assert!(error.to_string().contains("value of k in table t"), "{error}");
}

#[test]
fn a_path_that_cannot_be_made_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let error = Embedded::open(&directory.path().join("file/state.redb")).unwrap_err();
    assert!(error.to_string().starts_with("cannot create directory /"), "{error}");
}

fn fresh() -> (tempfile::TempDir, Embedded) {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(&directory.path().join("state.redb")).unwrap();
    (directory, store)
}
