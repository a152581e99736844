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
    command.env("COLUMNS", "1000");
    command.arg("decode").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A run that refuses its arguments does not read its input.
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
        for key in
            ["packet", "time", "source", "destination", "within", "message", "fields", "reencodes"]
        {
            assert!(element.get(key).is_some(), "{key}: {element}");
        }
        assert_eq!(element["message"].is_null(), element.get("error").is_some(), "{element}");
    }
    let update = list.iter().find(|element| element["message"] == "Binding Update").unwrap();
    assert_eq!(update["source"], "2001:db8:1:0:f0ca:28ff:fee6:6e60");
    let time = update["time"].as_str().unwrap();
    assert!(time.starts_with("20") && time.len() == "2026-01-31 14:05:00.123456Z".len(), "{time}");
    assert_eq!(update["fields"]["home_address_option"]["home_address"], "2001:db8:100::1234");
    assert_eq!(update["fields"]["checksum_ok"], true);
    assert_eq!(update["reencodes"], true);
    let piped = fs::read(&path).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Value>>(&ok(&["--json", "-"], &piped)).unwrap(), list);
}

#[test]
fn digits_are_taken_from_the_command_line_a_file_and_standard_input() {
    let text = ok(&[SOLICITATION], b"");
    assert!(text.starts_with("   1  Router Solicitation\n      fe80::1 > ff02::2\n"), "{text}");
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
    assert!(told(&["--as", "mh", "3b00"], b"").contains("2 bytes, at least 6 needed"));
    assert!(told(&["--as", "diameter", "00"], b"").contains("diameter"));
    assert!(told(&["--only", "binding", "00"], b"").contains("did you mean Binding "));
    assert!(told(&["--only", "sip", "00"], b"").contains("mobility, nd, mih, radius"));
}

#[test]
fn a_capture_that_ends_early_is_shown_up_to_there() {
    let whole = fs::read(captures().join("oai-pmip.pcap")).unwrap();
    let (said, text) = refused(&["-", "--json"], &whole[..whole.len() - 1]);
    assert!(said.contains("standard input: packet 18: the capture ends too early"), "{said}");
    let list: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(list.last().unwrap()["packet"], 17);
    let (said, text) = refused(&["-"], &whole[..30]);
    assert!(said.contains("packet 1: ") && text.is_empty(), "{said}");
    for n in 0..24 {
        refused(&["-"], &whole[..n]);
    }
}

#[test]
fn packets_of_others_are_counted_and_messages_chosen() {
    let path = captures().join("umip.pcap");
    let path = path.to_str().unwrap();
    let text = ok(&[path], b"");
    assert!(!text.contains("not decoded") && !text.contains("Z  ICMPv6"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("not shown: ") && last.contains(" ICMPv6 Echo Request"), "{last}");
    let updates = ok(&["--only", "Binding-Update", path], b"");
    let heads = |text: &str, name: &str| text.lines().filter(|line| line.ends_with(name)).count();
    assert!(heads(&updates, "Z  Binding Update") > 0);
    assert_eq!(heads(&updates, "Z  Binding Update"), heads(&text, "Z  Binding Update"));
    assert_eq!(heads(&updates, "Advertisement"), 0);
    let hidden = heads(&text, "Z  Router Advertisement");
    let hidden = format!(" {hidden} Router Advertisement");
    assert!(updates.lines().last().unwrap().contains(&hidden), "{hidden}");
    let list = |args: &[&str]| {
        serde_json::from_str::<Vec<Value>>(&ok(&[args, &["--json", path]].concat(), b"")).unwrap()
    };
    let groups = list(&["--only", "mobility,nd"]);
    assert_eq!(groups, list(&[]));
    assert_eq!(list(&["--only", "radius"]), [Value::Null; 0]);
    // Packets with an unknown link type are only counted.
    let mut unknown = fs::read(path).unwrap();
    unknown[20..22].copy_from_slice(&[147, 0]);
    let text = ok(&["-"], &unknown);
    assert!(text.starts_with("not shown: ") && text.ends_with(" link type 147\n"), "{text}");
}

#[test]
fn a_compressed_capture_is_read_and_one_that_ends_early_says_so() {
    let path = captures().join("oai-pmip.pcap");
    let whole = ok(&[path.to_str().unwrap()], b"");
    let mut gzip = Command::new("gzip").arg("-c").arg(&path).output().unwrap().stdout;
    assert_eq!(ok(&["-"], &gzip), whole);
    gzip.truncate(gzip.len() / 2);
    let (said, text) = refused(&["-"], &gzip);
    assert!(said.contains("the capture ends too early"), "{said}");
    assert!(whole.starts_with(text.split("not shown").next().unwrap()) && !text.is_empty());
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
