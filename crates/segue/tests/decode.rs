//! `segue decode` as a user runs it.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A router solicitation from fe80::1, as an IPv6 packet.
const SOLICITATION: &str = "6000000000103aff fe800000000000000000000000000001 \
    ff020000000000000000000000000002 85007627 00000000 0101020202020202";

fn decode(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
    command.arg("decode").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A run that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn ok(args: &[&str], input: &[u8]) -> String {
    let output = decode(args, input);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The one line on standard error of a run that ends with status 2, and its output.
fn refused(args: &[&str], input: &[u8]) -> (String, String) {
    let output = decode(args, input);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{args:?}: {said}");
    (said, String::from_utf8(output.stdout).unwrap())
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../decode/tests/captures")
}

#[test]
fn a_capture_is_a_list_with_the_same_keys_in_each_element() {
    let path = captures().join("umip.pcap");
    let list: Vec<Value> =
        serde_json::from_str(&ok(&["--json", path.to_str().unwrap()], b"")).unwrap();
    for element in &list {
        for key in ["packet", "source", "destination", "within", "message", "fields", "reencodes"] {
            assert!(element.get(key).is_some(), "{key}: {element}");
        }
        assert_eq!(element["message"].is_null(), element.get("error").is_some(), "{element}");
    }
    let update = list.iter().find(|element| element["message"] == "Binding Update").unwrap();
    assert_eq!(update["source"], "2001:db8:1:0:f0ca:28ff:fee6:6e60");
    assert_eq!(update["fields"]["home_address_option"]["home_address"], "2001:db8:100::1234");
    assert_eq!(update["fields"]["checksum_ok"], true);
    assert_eq!(update["reencodes"], true);
    let piped = fs::read(&path).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Value>>(&ok(&["--json", "-"], &piped)).unwrap(), list);
}

#[test]
fn digits_are_taken_from_the_command_line_a_file_and_standard_input() {
    let text = ok(&[SOLICITATION], b"");
    assert!(text.starts_with("   1  fe80::1 > ff02::2  Router Solicitation\n"), "{text}");
    assert!(text.contains("checksum_ok  yes\n") && text.contains("02:02:02:02:02:02"), "{text}");
    assert_eq!(ok(&["-"], SOLICITATION.as_bytes()), text);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(SOLICITATION.replace(' ', "\n").as_bytes()).unwrap();
    assert_eq!(ok(&[file.path().to_str().unwrap()], b""), text);
}

#[test]
fn a_message_by_itself_is_named_on_the_command_line() {
    let request = ok(&["--as", "mh", "3b00000000000000"], b"");
    assert!(request.starts_with("   1  Binding Refresh Request\n"), "{request}");
    let solicitation = ok(&["--as", "icmpv6", "--json", "8500000000000000"], b"");
    let list: Vec<Value> = serde_json::from_str(&solicitation).unwrap();
    assert_eq!(
        (&list[0]["source"], &list[0]["fields"]["checksum_ok"]),
        (&Value::Null, &Value::Null)
    );
    let data = format!("1000000000000007 1122334455667788 {SOLICITATION}");
    let data = ok(&["--as", "segue", &data], b"");
    assert!(data.contains("Segue Data\n") && data.contains("Router Solicitation\n"), "{data}");
}

#[test]
fn bad_input_is_told_in_one_line() {
    let told = |args: &[&str], input: &[u8]| refused(args, input).0;
    assert!(told(&["nowhere.pcap"], b"").contains("no such file"));
    assert!(told(&["600"], b"").contains("no such file"), "half a byte");
    assert!(told(&["/dev/null"], b"").contains("neither a capture"));
    assert!(told(&["/"], b"").starts_with("segue: /: cannot be read"));
    assert!(told(&["-"], b"hello").starts_with("segue: standard input: neither a capture"));
    assert!(told(&["8500000000000000"], b"").contains("--as"));
    assert!(told(&["6000000000103aff"], b"").contains("IPv6 header: 8 bytes, at least 40 needed"));
    assert!(told(&["--as", "mh", "3b00ff0000000000"], b"").contains("type 255 is not known"));
    assert!(told(&["--as", "diameter", "00"], b"").contains("diameter"));
    // Radiotap.
    let mut wifi = fs::read(captures().join("oai-pmip.pcap")).unwrap();
    wifi[20] = 127;
    assert!(told(&["-"], &wifi).contains("link type 127 is not decoded"));
}

#[test]
fn a_capture_that_ends_early_is_shown_up_to_there() {
    let whole = fs::read(captures().join("oai-pmip.pcap")).unwrap();
    let (said, text) = refused(&["-", "--json"], &whole[..whole.len() - 1]);
    assert!(said.contains("standard input: packet 18: the capture ends too early"), "{said}");
    let list: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(list.len(), 17);
    let (said, text) = refused(&["-"], &whole[..30]);
    assert!(said.contains("packet 1: ") && text.is_empty(), "{said}");
    for n in 0..24 {
        refused(&["-"], &whole[..n]);
    }
}

#[test]
fn the_documents_example_is_what_a_run_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/decode.md")).unwrap();
    let (_, example) = page.split_once("```\n$ segue decode ").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let (file, shown) = example.split_once('\n').unwrap();
    let printed = ok(&[root.join(file).to_str().unwrap()], b"");
    let parts: Vec<&str> = shown.split("...\n").filter(|part| !part.is_empty()).collect();
    assert_eq!(parts.len(), 1);
    assert!(printed.contains(parts[0]), "{}", parts[0]);
}
