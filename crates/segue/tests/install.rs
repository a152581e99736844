//! `make install` and `make uninstall` into a separate directory.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use segue::cmd::roles::{self, Role};

const SEGUE: &str = env!("CARGO_BIN_EXE_segue");

fn make(target: &str, into: &Path, prefix: &str) -> Output {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../.."].iter().collect();
    let mut make = Command::new("make");
    // Ignore the settings of a `make` that may run this test.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS").current_dir(root);
    make.args([target, &format!("DESTDIR={}", into.display()), &format!("PREFIX={prefix}")]);
    make.arg(format!("BINARY={SEGUE}")).output().unwrap()
}

fn files(under: &Path) -> BTreeSet<String> {
    let list = Command::new("find").arg(under).args(["-type", "f", "-printf", "%P\n"]).output();
    String::from_utf8(list.unwrap().stdout).unwrap().lines().map(str::to_owned).collect()
}

fn installed(into: &Path, prefix: &str) {
    let output = make("install", into, prefix);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn run(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).env("COLUMNS", "1000").output() {
        Ok(output) => Some(output),
        Err(_) => {
            println!("skipped: no {program} here");
            None
        }
    }
}

#[test]
fn what_is_installed_is_whole_and_goes_again() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path();
    installed(into, "/usr");
    let all = files(into);
    for file in [
        "usr/bin/segue",
        "usr/lib/systemd/system/segue-anchor.service",
        "usr/lib/systemd/system/segue-host.service",
        "usr/lib/systemd/system/segue-mih-link-sap.service",
        "usr/share/man/man1/segue.1",
        "usr/share/man/man1/segue-host.1",
        "usr/share/man/man1/segue-sim-run.1",
        "usr/share/bash-completion/completions/segue",
        "usr/share/zsh/site-functions/_segue",
        "usr/share/fish/vendor_completions.d/segue.fish",
        "etc/segue/anchor.toml",
        "etc/segue/host.toml",
    ] {
        assert!(all.contains(file), "{file} is missing: {all:#?}");
    }
    let mode = |path: &str| into.join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("etc/segue"), mode("etc/segue/host.toml")), (0o750, 0o640));
    assert_eq!(mode("usr/bin/segue"), 0o755);
    man_pages_are_of_shown_verbs_and_render(into, &all);
    completions_are_read(into);
    units_are_right(into);

    // Reinstalling and uninstalling keep the operator's files.
    std::fs::write(into.join("etc/segue/host.toml"), "mtu = 1400\n").unwrap();
    installed(into, "/usr");
    assert_eq!(std::fs::read_to_string(into.join("etc/segue/host.toml")).unwrap(), "mtu = 1400\n");
    let output = make("uninstall", into, "/usr");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left: Vec<String> = files(into).into_iter().collect();
    let kept: BTreeSet<String> =
        roles::installed().map(|role| format!("etc/segue/{}.toml", role.name)).collect();
    assert_eq!(left, kept.into_iter().collect::<Vec<String>>());
}

fn man_pages_are_of_shown_verbs_and_render(into: &Path, all: &BTreeSet<String>) {
    let pages: Vec<&String> = all.iter().filter(|file| file.ends_with(".1")).collect();
    assert!(pages.len() > 20, "{pages:#?}");
    assert!(!pages.iter().any(|page| page.contains("generate")), "{pages:#?}");
    for page in pages {
        let path = into.join(page);
        let Some(output) = run("man", &["--warnings", "-l", path.to_str().unwrap()]) else {
            return;
        };
        assert!(output.status.success(), "{page}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{page}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("NAME") && said.contains("SYNOPSIS"), "{page}: {said}");
    }
}

fn completions_are_read(into: &Path) {
    let bash = into.join("usr/share/bash-completion/completions/segue");
    for (shell, file) in [
        ("bash", bash.clone()),
        ("zsh", into.join("usr/share/zsh/site-functions/_segue")),
        ("fish", into.join("usr/share/fish/vendor_completions.d/segue.fish")),
    ] {
        let Some(output) = run(shell, &["-n", file.to_str().unwrap()]) else { continue };
        assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // The completions of "segue han".
    let script = format!(
        ". {}; COMP_WORDS=(segue han); COMP_CWORD=1; _segue segue han segue; echo \"${{COMPREPLY[@]}}\"",
        bash.display()
    );
    let output = run("bash", &["-c", &script]).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "handover");
}

/// Checks that every unit starts an installed program with an installed, valid configuration.
fn units_are_right(into: &Path) {
    for (role, start) in roles::installed().map(|role| (role.name, role.verb())) {
        let unit = into.join(format!("usr/lib/systemd/system/segue-{role}.service"));
        let text = std::fs::read_to_string(&unit).unwrap();
        let start = format!("ExecStart=/usr/bin/segue {start} -c /etc/segue/{role}.toml");
        assert!(text.lines().any(|line| line == start), "{text}");
        assert!(!text.contains("@PREFIX") && !text.contains("@SYSCONFDIR"), "{text}");
        let config = into.join(format!("etc/segue/{role}.toml"));
        let check = run(SEGUE, &["check", config.to_str().unwrap(), "--as", role]).unwrap();
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success(), "{role}: {said}");
        let row = |key: &str| said.lines().find(|line| line.trim().starts_with(key));
        for (of, key, value) in [
            ("anchor", "nat ", "translated"),
            ("host", "join_file ", "/etc/segue/join"),
            ("pmip-lma", "radius ", "nobody"),
            ("pmip-mag", "radius ", "nobody"),
        ] {
            assert!(role != of || row(key).unwrap().contains(value), "{said}");
        }
        for key in ["name ", "datapath "] {
            assert!(row(key).is_none_or(|row| row.ends_with("(default)")), "{said}");
        }
        // Substitute the program's present path for the final one that the unit names.
        let here = into.join(format!("segue-{role}.service"));
        std::fs::write(&here, text.replace("/usr/bin/segue", SEGUE)).unwrap();
        if let Some(output) =
            run("systemd-analyze", &["verify", "--man=no", here.to_str().unwrap()])
        {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains(here.to_str().unwrap()), "{said}");
        }
        std::fs::remove_file(here).unwrap();
    }
}

#[test]
fn the_prefix_is_where_it_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    installed(directory.path(), "/opt/segue");
    let all = files(directory.path());
    assert!(
        all.iter().all(|file| file.starts_with("opt/segue/") || file.starts_with("etc/segue/"))
    );
    let unit = directory.path().join("opt/segue/lib/systemd/system/segue-host.service");
    assert!(std::fs::read_to_string(unit).unwrap().contains("ExecStart=/opt/segue/bin/segue host"));
}

/// The settings that a role's configuration puts in force.
fn in_force(role: &Role, text: &str) -> String {
    let settings = role.settings(Path::new("a file"), text);
    settings.map_or_else(|error| panic!("{error:#}:\n{text}"), |all| format!("{all:#?}"))
}

/// The table name in a header line, which may be commented out.
fn header(line: &str) -> Option<&str> {
    let name = line.trim_start_matches(['#', ' ']).strip_prefix('[')?;
    Some(name.trim_matches(['[', ']']))
}

/// An installed file with the default at line `default` uncommented. If the line belongs to a commented example table,
/// `radius` for instance, its other examples and those of its subtables such as `radius.server` are uncommented, too.
fn with(text: &str, table: &str, default: usize) -> String {
    let (mut at, of_gateway) = ("", text.contains("\nanchor = "));
    let lines = text.lines().enumerate().map(|(number, line)| {
        if let Some(name) = header(line) {
            at = if line.starts_with("# ") { name } else { "" };
        }
        // A gateway's [mih] requires the access whose hosts are reported.
        let goes_with = |at: &str| at == table || at == "access" && table == "mih" && of_gateway;
        let commented = line.strip_prefix("# ").filter(|key| {
            // With a fixed plan, targets would have no effect.
            let is_key = |name: &str| !name.contains(' ') && !["k", "period"].contains(&name);
            header(key).is_some() || key.split_once(" = ").is_some_and(|(name, _)| is_key(name))
        });
        match commented {
            Some(example) if !at.is_empty() && at.split('.').next().is_some_and(goes_with) => {
                example
            }
            _ if number == default => &line[1..],
            _ => line,
        }
    });
    lines.collect::<Vec<&str>>().join("\n")
}

#[test]
fn installed_files_show_true_defaults() {
    let directory = tempfile::tempdir().unwrap();
    installed(directory.path(), "/usr");
    let mut defaults = 0;
    for role in roles::installed() {
        let file = directory.path().join(format!("etc/segue/{}.toml", role.name));
        let text = std::fs::read_to_string(file).unwrap();
        let mut table = "";
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = header(line) {
                table = if line.starts_with("# ") { name.split('.').next().unwrap() } else { "" };
            }
            let is_default = line.starts_with('#') && !line.starts_with("# ") && line != "#";
            if is_default {
                let base = in_force(role, &with(&text, table, usize::MAX));
                let with_it = in_force(role, &with(&text, table, number));
                let role = role.name;
                assert!(with_it == base, "{role}: {line} is not the default:\n{with_it}\n{base}");
                defaults += 1;
            }
        }
    }
    assert!(defaults > 130, "{defaults}");
}

#[test]
fn documentation_is_beside_the_program() {
    let directory = tempfile::tempdir().unwrap();
    installed(directory.path(), "/usr");
    let docs = directory.path().join("usr/share/doc/segue");
    for page in files(&docs).iter().filter(|file| file.ends_with(".md")) {
        let folder = docs.join(page).parent().unwrap().to_owned();
        let text = std::fs::read_to_string(docs.join(page)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_outside = link.is_empty() || link.contains("://");
            assert!(is_outside || folder.join(link).exists(), "{page} names {link}");
        }
    }
    let pages = directory.path().join("usr/share/man/man1");
    for role in roles::installed().map(|role| role.name) {
        let page = std::fs::read_to_string(pages.join(format!("segue-{role}.1"))).unwrap();
        let (options, files) = page.split_once(".SH FILES").unwrap();
        let file = format!("/etc/segue/{role}.toml").replace('-', "\\-");
        assert!(options.contains(&format!("[default: {file}")), "{options}");
        assert!(files.contains(&file) && files.contains("share/doc/segue"), "{files}");
    }
}

/// Runs a verb that must fail, with this directory mounted as `/etc`. Returns its error messages.
fn with_etc(etc: &Path, verb: &str) -> String {
    let script = format!("mount --bind {} /etc && exec timeout 10 {SEGUE} {verb}", etc.display());
    let output = run("unshare", &["--mount", "sh", "-c", &script]).unwrap();
    assert_eq!(output.status.code(), Some(2), "{verb}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn without_a_file_named_a_daemon_reads_that_of_its_role() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let etc = tempfile::tempdir().unwrap();
    std::fs::create_dir(etc.path().join("segue")).unwrap();
    for (role, missing) in [("pmip-lma", "pmip lma"), ("pmip-mag", "pmip mag")] {
        let expected = format!(
            "segue: /etc/segue/{role}.toml does not exist: create it, or name a file with -c\n"
        );
        assert_eq!(with_etc(etc.path(), missing), expected);
    }
    for (role, verb) in roles::installed().map(|role| (role.name, role.verb())) {
        let file = etc.path().join(format!("segue/{role}.toml"));
        std::fs::write(file, "no_such_key = 1\n").unwrap();
        let said = with_etc(etc.path(), &verb);
        assert!(said.starts_with(&format!("segue: /etc/segue/{role}.toml:1: ")), "{said}");
    }
}
