//! `segue check` on valid and invalid files of each kind.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use segue::cmd::roles;
use serde_json::Value;

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect()
}

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_segue"))
        .env("COLUMNS", "1000")
        .arg("check")
        .args(args)
        .output()
        .unwrap()
}

fn written(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_example_is_ok_and_known_for_what_it_is() {
    let others = [
        ("lab.toml", "lab"),
        ("cells.toml", "lab"),
        ("handover.toml", "scenario"),
        ("dumbbell.toml", "scenario"),
        ("paper4-tree.toml", "scenario"),
        ("sweep.toml", "scenario"),
        ("million.toml", "scenario"),
        ("pmip-walk.toml", "scenario"),
        ("pmip-mih.toml", "scenario"),
        ("pmip/lab.toml", "lab"),
        ("pmip/lma.toml", "pmip-lma"),
        ("pmip/wlan1.toml", "pmip-mag"),
        ("pmip/wlan2.toml", "pmip-mag"),
        ("pmip/lte1.toml", "pmip-mag"),
        ("pmip/lte2.toml", "pmip-mag"),
    ];
    let others = others.map(|(name, kind)| (name.to_owned(), kind));
    let daemons = roles::installed().map(|role| (format!("{}.toml", role.name), role.name));
    let kinds: Vec<(String, &str)> = daemons.chain(others).collect();
    for (name, kind) in &kinds {
        let file = root().join("examples").join(name);
        let output = check(&[file.to_str().unwrap(), "--json"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {said}");
        let told: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&told["kind"], &told["ok"]), (&(*kind).into(), &true.into()), "{name}");
    }
    let files = ["examples", "examples/pmip"].map(|at| std::fs::read_dir(root().join(at)).unwrap());
    let files = files.into_iter().flatten();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".toml")).count(), kinds.len());
}

#[test]
fn a_file_that_might_be_of_any_kind_is_told_to_be_a_guess_and_what_is_no_text_is_told_alike() {
    let directory = tempfile::tempdir().unwrap();
    for (text, code) in [("port = 6000\n", 0), ("port = 0\nprot = 1\n", 2)] {
        let output = check(&[&written(directory.path(), "x.toml", text)]);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("a host's configuration (a guess: "), "{said}");
    }
    let binary = directory.path().join("binary.toml");
    std::fs::write(&binary, [0xff, b'\n']).unwrap();
    let binary = binary.to_str().unwrap();
    for words in [
        &["check", binary][..],
        &["host", "-c", binary],
        &["lab", "up", binary],
        &["sim", "run", binary],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_segue"))
            .env("COLUMNS", "1000")
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = format!("segue: cannot read {binary}: it is no UTF-8 text\n");
        assert_eq!(said, expected, "{words:?}");
    }
}

#[test]
fn what_is_in_force_names_every_key_and_marks_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let file = written(directory.path(), "anchor.toml", "nat = true\nport = 6000\n");
    let output = check(&[&file, "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let in_force = &told["in_force"];
    assert_eq!(in_force["port"], serde_json::json!({"value": "6000", "default": false}));
    assert_eq!(in_force["signal_port"], serde_json::json!({"value": "5006", "default": true}));
    assert!(in_force["nat"]["value"].as_str().unwrap().contains("NAT66"), "{told:#}");
    // The error message lists the valid keys.
    for role in ["anchor", "host"] {
        let file = written(directory.path(), "wrong.toml", "no_such_key = 1\n");
        let output = check(&[&file, "--as", role]);
        let said = String::from_utf8(output.stderr).unwrap();
        let keys = said.split_once("expected one of").unwrap().1.split('`').skip(1).step_by(2);
        let file = written(directory.path(), "empty.toml", "");
        let output = check(&[&file, "--as", role, "--json"]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        for key in keys.filter(|key| !["path", "stamp_key"].contains(key)) {
            assert!(!told["in_force"][key].is_null(), "{role}: {key} is not told");
        }
    }
    let lma = "address = \"fd00::1\"\npool = \"2001:db8::/48\"\ngateways = [\"fd00::/16\"]\n";
    let access = "[[access]]\ninterface = \"a\"\nproxy_coa = \"fd00::2\"\n";
    let roles = [
        ("pmip-lma", lma.to_owned()),
        ("pmip-mag", format!("anchor = \"fd00::1\"\n{access}")),
        ("mih-link-sap", "[[link]]\ninterface = \"a\"\n".to_owned()),
    ];
    for (role, least) in roles {
        let file = written(directory.path(), "wrong.toml", "no_such_key = 1\n");
        let said = String::from_utf8(check(&[&file, "--as", role]).stderr).unwrap();
        let keys = said.split_once("expected one of").unwrap().1.split('`').skip(1).step_by(2);
        let file = written(directory.path(), "least.toml", &least);
        let output = check(&[&file, "--as", role, "--json"]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        for key in keys.filter(|key| !["access", "link"].contains(key)) {
            assert!(!told["in_force"][key].is_null(), "{role}: {key} is not told: {told}");
        }
    }
    let text = check(&[&written(directory.path(), "host.toml", "port = 6000\n")]);
    let text = String::from_utf8(text.stdout).unwrap();
    let line = |key: &str| text.lines().find(|line| line.trim().starts_with(key)).unwrap();
    assert!(
        text.lines().next().unwrap().ends_with("host.toml: ok, a host's configuration"),
        "{text}"
    );
    assert!(line("device").ends_with("(default)") && !line("port").contains("default"), "{text}");
}

#[test]
fn every_mistake_has_a_line_and_ends_with_status_2() {
    let directory = tempfile::tempdir().unwrap();
    let text = "addresses = [\"192.0.2.1\", \"192.0.2.777\"]\npool_v4 = \"10.77.0.0/33\"\nprot = 1\nmtu = 3\n";
    let file = written(directory.path(), "anchor.toml", text);
    let output = check(&[&file]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stdout, b"");
    let said = String::from_utf8(output.stderr).unwrap();
    for (n, part) in [(1, "192.0.2.777"), (2, "pool_v4"), (3, "unknown field `prot`"), (4, "mtu")] {
        let start = format!("segue: {file}:{n}: ");
        assert!(said.lines().any(|l| l.starts_with(&start) && l.contains(part)), "{n}: {said}");
    }
    assert_eq!(said.lines().count(), 4, "{said}");

    let text = "seed = 1\nduration = \"1\"\n[[node]]\nname = \"a\"\n[[link]]\nname = \"l\"\n\
                ends = [\"a\", \"b\"]\ndelay = \"1ms\"\n";
    let file = written(directory.path(), "net.toml", text);
    let output = check(&[&file, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines: Vec<u64> =
        told["mistakes"].as_array().unwrap().iter().filter_map(|m| m["line"].as_u64()).collect();
    assert_eq!(lines, [2], "{told:#}");

    let output = check(&["/nonexistent/host.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("segue: cannot read /nonexistent/host.toml"), "{said}");
}

/// The mistakes reported for a file, one per line.
fn mistakes(directory: &Path, name: &str, text: &str) -> String {
    let output = check(&[&written(directory, name, text)]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

#[test]
fn a_secret_that_the_daemon_could_not_read_is_a_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    let text = format!(
        "address = \"fd00:1::1\"\ngateways = [\"fd00:2::2\"]\npool = \"2001:db8::/48\"\n\
         [radius]\n[[radius.server]]\naddress = \"fd00:9::1\"\nsecret_file = {secret:?}\n"
    );
    let said = || mistakes(directory.path(), "lma.toml", &text);
    let absent = said();
    assert!(absent.contains("lma.toml:7: ") && absent.contains("No such file"), "{absent}");
    assert_eq!(absent.lines().count(), 1, "{absent}");
    std::fs::write(&secret, "\n").unwrap();
    set_mode(&secret, 0o644);
    assert!(said().contains("can be read by others; run: chmod 600 "), "{}", said());
    set_mode(&secret, 0o600);
    assert!(said().contains("secret") && said().contains(" is empty"), "{}", said());
    std::fs::remove_file(&secret).unwrap();
    std::fs::create_dir(&secret).unwrap();
    set_mode(&secret, 0o700);
    assert!(said().contains("is no regular file"), "{}", said());
    std::fs::remove_dir(&secret).unwrap();
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(&secret).status().unwrap();
    assert!(made.success());
    assert!(said().contains("is no regular file"), "nobody writes to it: {}", said());
    std::fs::remove_file(&secret).unwrap();
    std::fs::write(&secret, "between us\n").unwrap();
    set_mode(&secret, 0o600);
    let path = directory.path().join("lma.toml");
    assert!(check(&[path.to_str().unwrap()]).status.success());
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn names_that_no_interface_has_and_addresses_that_no_station_has_are_mistakes() {
    const MAG: &str = "anchor = \"fd00:1::1\"\n[[access]]\ninterface = \"IFACE\"\n\
                       proxy_coa = \"fd00:2::2\"\n[[node]]\nlink_layer = \"MAC\"\nname = \"a@b\"\n";
    const SAP: &str = "[[link]]\ninterface = \"IFACE\"\naddress = \"MAC\"\n";
    let directory = tempfile::tempdir().unwrap();
    let long = "wlan0123456789ab";
    let good = "wlan0123456789a";
    for (name, text) in [
        ("host.toml", format!("interfaces = [\"lo\", \"{long}\"]\n")),
        ("host.toml", format!("[path.{long}]\nprice = 1.0\n")),
        ("anchor.toml", format!("interfaces = [\"{long}\"]\n")),
        ("mag.toml", MAG.replace("IFACE", long).replace("MAC", "02:00:00:00:00:01")),
        ("link-sap.toml", SAP.replace("IFACE", long).replace("MAC", "02:00:00:00:00:01")),
    ] {
        let said = mistakes(directory.path(), name, &text);
        let wanted = format!("\"{long}\" has 16 characters");
        assert!(said.contains(&wanted) && said.contains("at most 15"), "{name}: {said}");
    }
    for (name, text) in [("mag.toml", MAG), ("link-sap.toml", SAP)] {
        let text = text.replace("IFACE", good).replace("MAC", "33:33:00:00:00:01");
        let said = mistakes(directory.path(), name, &text);
        assert!(said.contains("33:33:00:00:00:01 is the address of a group"), "{name}: {said}");
    }
}
