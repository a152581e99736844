//! Differentiated services code points by name (IANA registry of RFC 2474 and later RFCs).

/// The code point with this name or number.
///
/// # Errors
/// One line with the known names.
pub(crate) fn parse(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_lowercase();
    let of = |prefix: &str| name.strip_prefix(prefix).and_then(|digits| digits.parse::<u8>().ok());
    let value = match name.as_str() {
        "ef" => Some(46),
        "va" | "voice-admit" => Some(44),
        "le" => Some(1),
        "be" | "df" | "default" => Some(0),
        _ => match (of("cs"), of("af"), name.parse().ok()) {
            (Some(class @ 0..=7), ..) => Some(class << 3),
            (_, Some(af), _) if matches!(af / 10, 1..=4) && matches!(af % 10, 1..=3) => {
                Some(af / 10 * 8 + af % 10 * 2)
            }
            (.., Some(number @ 0..=63)) => Some(number),
            _ => None,
        },
    };
    value.ok_or_else(|| {
        format!("{text} is no DSCP; there are 0 to 63, cs0 to cs7, af11 to af43, ef, va, le and be")
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn names_are_those_of_the_registry() {
        for (name, value) in [
            ("ef", 46),
            ("EF", 46),
            ("af41", 34),
            ("af11", 10),
            ("af43", 38),
            ("cs1", 8),
            ("cs7", 56),
            ("46", 46),
            ("le", 1),
            ("be", 0),
        ] {
            assert_eq!(parse(name), Ok(value), "{name}");
        }
        for name in ["", "64", "-1", "cs8", "af44", "af51", "af4", "gold"] {
            assert!(parse(name).is_err(), "{name}");
        }
    }
}
