//! Bulk transfer over TCP.

use segue_clock::Span;

use super::stream::Period;

/// A transfer from the second end to the first, or the other way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FtpConfig {
    /// Bytes of a file; `None`: one that never ends.
    pub file_bytes: Option<u64>,
    /// How many files one after the other; `None`: as many as there is time for.
    pub files: Option<u64>,
    /// Time from the end of a file to the start of the next.
    pub pause: Span,
    /// Whether the first end sends.
    pub upload: bool,
    /// From when and until when files are started.
    pub period: Period,
}

impl Default for FtpConfig {
    /// Greedy, to the first end.
    fn default() -> FtpConfig {
        FtpConfig {
            file_bytes: None,
            files: None,
            pause: Span::ZERO,
            upload: false,
            period: Period::default(),
        }
    }
}
