//! Configuration files of daemons.

use std::path::Path;

use anyhow::anyhow;
use toml::de::DeTable;

use crate::keepalive::complete;
use crate::part::Part;
use crate::source::{Mistake, hint, key_at, printable};

/// A configuration that can be read from a file.
pub trait Config: Part {
    /// True if the file has tables `path.NAME` that must be completed from others.
    const PATHS: bool = false;
}

/// Reads a TOML file; every error is one line with file, line and key.
pub fn read<T: Config>(path: &Path) -> anyhow::Result<T> {
    parse(&crate::text(path)?, &path.display().to_string())
}

/// Reads the text of the TOML file `name`; every error is one line with file, line and key.
pub fn parse<T: Config>(text: &str, name: &str) -> anyhow::Result<T> {
    let read = || {
        let mut file = DeTable::parse(text).map_err(|error| Mistake::read(&error))?;
        if T::PATHS {
            complete(file.get_mut());
        }
        let keys = T::keys();
        match file.get_ref().keys().find(|key| !keys.contains(&key.get_ref().as_ref())) {
            Some(key) => Err(Mistake::of(key, unknown(key.get_ref(), &keys))),
            None => T::take(&mut file),
        }
    };
    read().map_err(|mistake: Mistake| {
        let place = mistake.at.min(text.len());
        let line = text[..place].matches('\n').count() + 1;
        let message = mistake.message.replace("expected f64", "expected a number");
        // The library names unknown keys in its messages, but not the keys of wrong values.
        let file = DeTable::parse(text).ok().filter(|_| !message.starts_with("unknown field"));
        let key = file.and_then(|file| key_at(file.get_ref(), place));
        let key = key.map_or_else(String::new, |key| format!("{key}: "));
        let meant = meant(&message);
        anyhow!("{name}:{line}: {}", printable(&format!("{key}{message}{meant}")))
    })
}

/// The library's message about an unknown key.
fn unknown(key: &str, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    format!("unknown field `{key}`, expected one of {}", known.join(", "))
}

/// A suggestion: the known key that resembles the unknown one in the message, if any.
fn meant(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    let Some(unknown) = words.next().filter(|_| message.starts_with("unknown field")) else {
        return String::new();
    };
    let known: Vec<&str> = words.collect();
    Some(hint(unknown, &known)).filter(|hint| hint.contains("did you mean")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use segue_clock::Span;
    use serde::Deserialize;

    use super::*;
    use crate::values::{Duration, Ratio};

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Small {
        wait: Option<Duration>,
        share: Option<Ratio>,
        #[expect(dead_code, reason = "it is only read")]
        hosts: Option<Vec<std::net::IpAddr>>,
    }

    impl Config for Small {}

    #[test]
    fn durations_and_shares_read_with_their_units() {
        let small: Small = parse("wait = \"1.5s\"\nshare = 0.05", "x").unwrap();
        assert_eq!(small.wait, Some(Duration(Span::from_millis(1_500))));
        assert_eq!(small.share, Some(Ratio(0.05)));
        assert_eq!(parse::<Small>("share = \"5%\"", "x").unwrap().share, Some(Ratio(0.05)));
    }

    #[test]
    fn an_error_is_one_line_with_file_line_and_what_is_wrong() {
        for (text, part) in [
            ("\nwait = 5", "wait: invalid type"),
            ("\nwiat = \"5s\"", "x:2: unknown field `wiat`"),
            ("\nwiat = \"5s\"", "(did you mean wait?)"),
            ("\nhosts = [\"::1\", \"::zz\"]", "hosts: invalid IP"),
            ("\nwait = \"5 parsecs\"", "parsecs"),
            ("\nwait = ", "x:2"),
        ] {
            let error = parse::<Small>(text, "x").unwrap_err().to_string();
            assert!(error.starts_with("x:2: ") && error.contains(part), "{error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }
}
