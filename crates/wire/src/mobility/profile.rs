//! How a peer departs from the standards.

/// Where a peer departs from the standards and is understood all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Messages have no padding at their end, and Header Len says up to seven octets less than there are.
    pub unpadded_end: bool,
    /// The Timestamp option is in the byte order of x86, each half by itself.
    pub little_endian_timestamp: bool,
}

impl Profile {
    /// What the RFCs say.
    pub const STRICT: Profile = Profile { unpadded_end: false, little_endian_timestamp: false };
    /// OAI-PMIPv6-FM, as measured. Its other habits are values that any message may have.
    pub const OAI: Profile = Profile { unpadded_end: true, little_endian_timestamp: true };
}
