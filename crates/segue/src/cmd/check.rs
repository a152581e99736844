//! `segue check`

pub(crate) mod summary;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use segue_daemon::lacks;
use segue_linux::link;
use segue_text::errors::Told;
use segue_text::say;
use segue_text::terminal::{complain, visible};
use serde_json::json;

use self::summary::Row;
use super::roles::{self, Content, File, Kind, key_of};

/// Check a configuration or scenario: show what would be in force, or every mistake.
///
/// Files of hosts, anchors, Proxy Mobile IPv6 and IEEE 802.21, networks of `segue lab` and scenarios of `segue sim` are recognised by their content, or by
/// their name where the content fits several. Nothing is changed, and only permission to read the file is needed. A
/// mistake that depends on a required key is reported once that key is right.
#[derive(clap::Args)]
pub struct Args {
    /// The file
    file: PathBuf,
    /// Read the file as this kind
    #[arg(long = "as", value_parser = kind_parser(), value_name = "KIND")]
    kind: Option<Kind>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Maximum number of mistakes reported for one file.
const MISTAKES_MAX: usize = 50;

/// Appended to the file kind when `check` only guessed it.
const GUESS: &str = " (a guess: neither content nor name tells the kind; name it with --as)";

/// A mistake, with its line if known.
#[derive(Debug, PartialEq, Eq)]
struct Mistake {
    line: Option<usize>,
    what: String,
}

/// Reads the name of a kind; help and completions list them.
pub(super) fn kind_parser() -> impl TypedValueParser<Value = Kind> {
    let values = roles::kinds().map(|(role, file)| PossibleValue::new(role.name).help(file.what));
    let find = |name: String| roles::kinds().find(|(role, _)| role.name == name);
    PossibleValuesParser::new(values).try_map(move |name| find(name).ok_or("no such kind"))
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let name = args.file.display().to_string();
    if std::fs::metadata(&args.file).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        bail!("{name} is no file that can be checked, but a pipe or a device");
    }
    let text = segue_grammar::text(&args.file)?;
    let known = args.kind.or_else(|| roles::kind_of(&args.file, &text));
    let (role, file) = known.unwrap_or_else(roles::guess);
    let guess = if known.is_some() { "" } else { GUESS };
    match check(file, &args.file, &text) {
        Ok(content) if args.json => {
            let rows = content.rows.into_iter();
            let in_force: serde_json::Map<_, _> = rows
                .map(|row| (row.key, json!({"value": row.value, "default": row.default})))
                .collect();
            let told = json!({"file": name, "kind": role.name, "ok": true, "in_force": in_force});
            println!("{told:#}");
        }
        Ok(content) => {
            say!("{}: ok, {}{guess}", visible(&name), file.title);
            absent(&content).iter().for_each(|line| complain(&format!("{name}: {line}")));
            let rows = content.rows;
            let widest = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
            for Row { key, value, default } in rows {
                let mark = if default { "  (default)" } else { "" };
                say!("  {key:widest$}  {value}{mark}");
            }
        }
        Err(mistakes) => {
            if args.json {
                let all: Vec<_> =
                    mistakes.iter().map(|m| json!({"line": m.line, "message": m.what})).collect();
                let told = json!({"file": name, "kind": role.name, "ok": false, "mistakes": all});
                println!("{told:#}");
            } else {
                for Mistake { line, what } in &mistakes {
                    let line = line.map(|n| format!(":{n}")).unwrap_or_default();
                    complain(&format!("{name}{line}: {what}"));
                }
                if !guess.is_empty() {
                    complain(&format!("{name}: read as {}{guess}", file.title));
                }
            }
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The name that an error message reports as unknown.
fn unknown(what: &str) -> Option<&str> {
    let words = what.split_once("there is no ").map(|(_, rest)| rest.split(' ').nth(1));
    let place = || what.split_once("no link of ").map(|(_, rest)| rest.split(' ').next());
    words.or_else(place).flatten()
}

/// The line numbers of the table that contains this line.
fn table_of(lines: &[String], number: usize) -> Range<usize> {
    let is_head = |line: &String| line.starts_with('[');
    let first = lines[..number].iter().rposition(is_head).unwrap_or(0);
    let rest = lines[number..].iter().position(is_head);
    first + 1..rest.map_or(lines.len(), |rest| number + rest) + 1
}

/// Returns the valid file, or every mistake. The readers stop at the first mistake, so each
/// mistake is removed from the text and the rest is read again.
fn check(file: &File, path: &Path, text: &str) -> Result<Content, Vec<Mistake>> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut mistakes: Vec<Mistake> = Vec::new();
    let mut taken: Vec<String> = Vec::new();
    let written = lines.clone();
    let mut doubted: BTreeSet<usize> = BTreeSet::new();
    loop {
        let error = match read(file, path, &(lines.join("\n") + "\n")) {
            Ok(content) if mistakes.is_empty() => match content.settings.check_secrets() {
                Ok(()) => return Ok(content),
                Err(error) => {
                    let (line, what) = place(path, &lines, &Told(&error).to_string());
                    return Err(vec![Mistake { line, what }]);
                }
            },
            Ok(_) => break,
            Err(error) => Told(&error).to_string(),
        };
        let (line, what) = place(path, &lines, &error);
        // A key that is missing because it was removed or mistyped is not a separate mistake. Neither is a reference to
        // a name whose table is no longer read.
        let lacks = ["missing", "go together"].iter().any(|word| what.contains(word));
        let own = line.map_or(0..0, |line| table_of(&written, line));
        let torn = what.contains(" is one of ") && own.clone().any(|line| doubted.contains(&line));
        let mut elsewhere = doubted.iter().filter(|line| !own.contains(line));
        let mut named = |name| elsewhere.any(|line| is_word(&written[line - 1], name));
        let follows = torn
            || unknown(&what).is_some_and(&mut named)
            || lacks && taken.iter().any(|key| is_word(&what, key));
        let meant = what.split_once("did you mean ").and_then(|(_, rest)| rest.split_once('?'));
        taken.extend(meant.map(|(key, _)| key.to_owned()));
        if !follows {
            mistakes.push(Mistake { line, what });
        }
        let Some(line) = line.filter(|line| !lines[line - 1].trim().is_empty()) else { break };
        if mistakes.len() == MISTAKES_MAX {
            break;
        }
        doubted.extend(table_of(&written, line));
        taken.extend(key_of(&lines[line - 1]).map(str::to_owned));
        take_out(&mut lines, line);
    }
    mistakes.sort_by_key(|mistake| mistake.line);
    Err(mistakes)
}

/// The listed interfaces that this machine does not have yet.
fn absent(content: &Content) -> Vec<String> {
    let Ok(links) = link::links() else { return Vec::new() };
    let listed = content.common.iter().flat_map(|common| &common.interfaces);
    listed.filter_map(|name| lacks::interface("interfaces:", name, &links)).collect()
}

fn read(file: &File, path: &Path, text: &str) -> anyhow::Result<Content> {
    let content = (file.read)((path, text))?;
    content.settings.check_here()?;
    Ok(content)
}

/// The line of an error, and its message. An error without a line names a key, or a table in
/// quotes.
fn place(path: &Path, lines: &[String], error: &str) -> (Option<usize>, String) {
    let name = path.display().to_string();
    let rest = error.strip_prefix(&name).and_then(|rest| rest.strip_prefix(':'));
    if let Some((number, what)) = rest.and_then(|rest| rest.split_once(':'))
        && let Ok(line @ 1..) = number.parse::<usize>()
    {
        return (Some(line.min(lines.len())), what.trim().to_owned());
    }
    let what = rest.unwrap_or(error).trim().to_owned();
    let table =
        what.strip_prefix('"').and_then(|rest| rest.split_once('"')).map(|(table, _)| table);
    let words = what.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let line = match table {
        Some(table) => {
            let within = lines.iter().position(|line| {
                key_of(line).is_some_and(|key| key.trim_matches(['[', ']']).starts_with(table))
            });
            within.map(|header| {
                let section = lines.iter().enumerate().skip(header + 1);
                let mut section =
                    section.take_while(|(_, line)| !line.trim_start().starts_with('['));
                let named = |line: &str| key_of(line).is_some_and(|key| is_word(&what, key));
                section.find(|(_, line)| named(line)).map_or(header, |(n, _)| n)
            })
        }
        None => words
            .filter(|word| word.len() > 1)
            .find_map(|word| lines.iter().position(|line| key_of(line) == Some(word))),
    };
    (line.map(|n| n + 1), what)
}

fn is_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|one| one == word)
}

/// Empties a line and the continuation of its value, or a whole table.
fn take_out(lines: &mut [String], number: usize) {
    let first = number - 1;
    let depth = |line: &str| {
        let count = |c: [char; 2]| line.matches(c).count() as i64;
        count(['[', '{']) - count([']', '}'])
    };
    let is_table = lines[first].trim_start().starts_with('[')
        && key_of(&lines[first]).is_some_and(|key| key.ends_with(']'));
    let mut open = 0;
    for (n, line) in lines.iter_mut().enumerate().skip(first) {
        if is_table {
            if n > first && line.trim_start().starts_with('[') {
                break;
            }
        } else {
            if n > first && open <= 0 {
                break;
            }
            open += depth(line);
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn of(kind: &str) -> &'static File {
        roles::kinds().find(|(role, _)| role.name == kind).unwrap().1
    }

    fn mistakes(kind: &str, text: &str) -> Vec<(Option<usize>, String)> {
        let found = check(of(kind), Path::new("x.toml"), text).err().unwrap_or_default();
        found.into_iter().map(|mistake| (mistake.line, mistake.what)).collect()
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let text = "mtu = 100\nprot = 5005\nroutes = [\n  \"10.0.0.0/8\",\n  \"nowhere\",\n]\n\
                    [keepalive]\nperiod = 5\nloss = \"200%\"\n[steerin]\nmargin = 3\n[steering]\nmargin = -1.0\n";
        let found = mistakes("host", text);
        let lines: Vec<_> = found.iter().map(|(line, _)| line.unwrap_or(0)).collect();
        assert_eq!(lines, [1, 2, 3, 8, 9, 10, 13], "{found:#?}");
        assert!(found[1].1.contains("unknown field `prot`"), "{found:#?}");
    }

    #[test]
    fn what_the_daemon_refuses_is_a_mistake() {
        for (kind, text, line, part) in [
            ("anchor", "nat = true\nport = 7000\nsignal_port = 7000\n", 3, "both are 7000"),
            ("anchor", "nat = true\ninterfaces = []\n", 2, "the list is empty"),
            ("host", "mtu = 1400\ninterfaces = []\n", 2, "the list is empty"),
            ("host", "routes = [\"10.1.2.3/8\"]\n", 1, "did you mean 10.0.0.0/8?"),
        ] {
            let found = mistakes(kind, text);
            assert_eq!(found.len(), 1, "{text}: {found:#?}");
            assert!(found[0].0 == Some(line) && found[0].1.contains(part), "{found:#?}");
        }
        let directory = tempfile::tempdir().unwrap();
        let join = directory.path().join("join");
        std::fs::write(&join, "segue2:").unwrap();
        let text = format!("join_file = {join:?}\n");
        let set = |mode| std::fs::set_permissions(&join, PermissionsExt::from_mode(mode)).unwrap();
        set(0o644);
        let found = mistakes("host", &text);
        assert!(found.len() == 1 && found[0].1.contains("can be read by others"), "{found:#?}");
        set(0o600);
        assert_eq!(mistakes("host", &text), []);
        let text = "interfaces = [\"nosuch0\", \"lo\"]\n";
        let absent = absent(&check(of("host"), Path::new("x.toml"), text).unwrap());
        assert!(absent.len() == 1 && absent[0].contains("no such interface yet"), "{absent:?}");
    }

    #[test]
    fn a_mistake_in_a_table_of_its_own_is_found_there() {
        let text = "datapath = \"user\"\n[path.wlan0]\nprice = 1.0\n[path.wwan0]\nprice = -1.0\n";
        let found = mistakes("host", text);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].0, Some(5), "{found:#?}");
    }

    #[test]
    fn a_value_that_was_taken_out_is_not_told_as_missing_too() {
        let text =
            "[[node]]\nname = \"a\"\n[[link]]\nname = \"w\"\nends = [\"a\", \"b:x\"]\ndelay = 3\n";
        let found = mistakes("lab", text);
        assert!(found.iter().all(|(_, what)| !what.contains("missing")), "{found:#?}");
        assert!(found.iter().any(|(line, _)| *line == Some(5)), "{found:#?}");
        for (kind, text, line) in [
            ("scenario", "duration = \"1s\"\n[[node]]\nnam = \"a\"\n", 3),
            ("scenario", "duratio = \"1s\"\n[[node]]\nname = \"a\"\n", 1),
            ("lab", "[[node]]\nname = \"a\"\n[[link]]\nname = \"w\"\nend = [\"a\", \"b\"]\n", 5),
            ("host", "[keepalive]\nk = 300\nperiod = \"100ms\"\n", 2),
        ] {
            let lines: Vec<_> = mistakes(kind, text).into_iter().map(|(line, _)| line).collect();
            assert_eq!(lines, [Some(line)], "{text}");
        }
    }

    #[test]
    fn what_follows_from_a_mistake_is_not_told_as_another() {
        let nodes = "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n";
        for (text, lines) in [
            // An event names a link that failed to parse; a bad address leaves a route without its gateway.
            (
                "[[link]]\nname = \"l\"\nends = [\"a\", \"b:\"]\n\
                 [[event]]\nat = \"1s\"\ncut = \"l\"\nfor = 5\n[[event]]\nat = 1\ncut = \"m\"\n",
                &[7, 13][..],
            ),
            (
                "[[link]]\nname = \"l\"\nends = [\"a\", \"c\"]\naddresses = [[\"10.0.0.1\"], []]\n\
                 [[node]]\nname = \"c\"\nroutes = [\"default via 10.0.0.1\"]\n",
                &[8],
            ),
            (
                "[[link]]\nname = \"l\"\nends = [\"a\", \"d\"]\n[[cell]]\nname = \"e\"\nrouter = \"f\"\n",
                &[7, 10],
            ),
        ] {
            let found = mistakes("lab", &format!("{nodes}{text}"));
            let told: Vec<_> = found.iter().filter_map(|(line, _)| *line).collect();
            assert_eq!(told, lines, "{text}\n{found:#?}");
        }
    }
}
