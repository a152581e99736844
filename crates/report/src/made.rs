//! The origin of a report.

use std::time::{SystemTime, UNIX_EPOCH};

use segue_text::units;

use crate::Made;

/// The origin of a report made at this moment: time, version and command.
#[must_use]
pub fn made() -> Made {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let arguments = std::env::args_os().skip(1);
    Made {
        at: units::date(since.as_secs()),
        by: concat!("Segue ", env!("CARGO_PKG_VERSION")).into(),
        command: command(arguments.map(|each| each.to_string_lossy().into_owned())),
    }
}

/// The command as one would type it in a shell.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quoted = |each: String| match !each.is_empty() && each.chars().all(plain) {
        true => each,
        false => format!("'{}'", each.replace('\'', r"'\''")),
    };
    ["segue".to_owned()].into_iter().chain(arguments.map(quoted)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_typed_into_a_shell() {
        let typed = ["demo", "--out", "it's here", "--silent-at=8s", "", "$HOME"];
        assert_eq!(
            command(typed.map(str::to_owned).into_iter()),
            r"segue demo --out 'it'\''s here' --silent-at=8s '' '$HOME'"
        );
    }

    #[test]
    fn a_report_names_this_version_and_a_time_of_day() {
        let made = made();
        assert_eq!(made.by, format!("Segue {}", env!("CARGO_PKG_VERSION")));
        assert!(made.at.len() == "2026-01-31 14:05:00Z".len() && *made.at >= *"2026");
    }
}
