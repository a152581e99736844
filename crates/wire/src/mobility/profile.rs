//! Deviations of peers from the standards.

/// Accepted deviations of a peer from the standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Messages have no padding at the end, and Header Len may be up to 7 bytes too small.
    pub unpadded_end: bool,
    /// The Timestamp option is in the byte order of x86, each half separately.
    pub little_endian_timestamp: bool,
}

impl Profile {
    /// No deviations from the RFCs.
    pub const STRICT: Profile = Profile { unpadded_end: false, little_endian_timestamp: false };
    /// OAI-PMIPv6-FM, as observed. Its other peculiarities are valid values.
    pub const OAI: Profile = Profile { unpadded_end: true, little_endian_timestamp: true };
}
