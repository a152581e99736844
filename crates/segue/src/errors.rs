//! Errors as people read them.

use std::fmt;

/// An error with its causes in one line, each said once: some of them name their cause in their own text.
pub struct Told<'a>(pub &'a anyhow::Error);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        for cause in self.0.chain() {
            let text = cause.to_string();
            if said.is_empty() {
                said = text;
            } else if !said.contains(&text) {
                said = format!("{said}: {text}");
            }
        }
        f.write_str(&said)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_that_is_named_already_is_not_named_again() {
        let kernel = || std::io::Error::from_raw_os_error(libc::EPERM);
        let named = segue_datapath::DatapathError::Kernel { what: "open it", source: kernel() };
        let error = Err::<(), _>(named).context("no datapath").unwrap_err();
        let said = Told(&error).to_string();
        assert_eq!(said, "no datapath: open it: Operation not permitted (os error 1)");
        let error = Err::<(), _>(kernel()).context("no file").unwrap_err();
        assert_eq!(Told(&error).to_string(), "no file: Operation not permitted (os error 1)");
    }
}
