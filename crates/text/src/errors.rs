//! Formatting and collecting errors.

use std::fmt;

/// Displays an error with its causes on one line. Omits causes that are already part of the text, because some errors
/// repeat their cause.
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

/// Collects the results of independent steps and keeps the first failure.
#[derive(Default)]
pub struct First(Option<anyhow::Error>);

impl First {
    /// Records a step's result; returns its value.
    pub fn note<T>(&mut self, step: Result<T, impl Into<anyhow::Error>>) -> Option<T> {
        step.map_err(|error| self.0.get_or_insert(error.into())).ok()
    }

    /// The first failure, if any.
    pub fn result(self) -> anyhow::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn of_several_failures_the_first_is_kept() {
        let mut first = First::default();
        assert_eq!(first.note(anyhow::Ok(1)), Some(1));
        for why in ["this", "that"] {
            assert_eq!(first.note(Err::<(), _>(anyhow::anyhow!(why))), None);
        }
        assert_eq!(first.note(anyhow::Ok(2)), Some(2));
        assert_eq!(first.result().unwrap_err().to_string(), "this");
        assert!(First::default().result().is_ok());
    }

    #[test]
    fn a_cause_that_is_named_already_is_not_named_again() {
        /// An error that repeats its cause, like those of the datapath.
        #[derive(Debug)]
        struct Named(std::io::Error);
        impl fmt::Display for Named {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "open it: {}", self.0)
            }
        }
        impl std::error::Error for Named {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let kernel = || std::io::Error::other("not permitted");
        let error = Err::<(), _>(Named(kernel())).context("no datapath").unwrap_err();
        assert_eq!(Told(&error).to_string(), "no datapath: open it: not permitted");
        let error = Err::<(), _>(kernel()).context("no file").unwrap_err();
        assert_eq!(Told(&error).to_string(), "no file: not permitted");
    }
}
