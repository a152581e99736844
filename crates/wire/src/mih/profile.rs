//! Variants that the standard permits.

/// Which bit of a BITMAP is bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitOrder {
    /// The least significant bit of the last byte, as in ODTONE and OAI-PMIPv6-FM: a BITMAP is a number.
    #[default]
    LeastFirst,
    /// The most significant bit of the first byte, as in tshark.
    MostFirst,
}

/// How frames are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Bit order of all BITMAPs.
    pub bit_order: BitOrder,
    /// True to keep a TLV whose value does not match its type as raw bytes; otherwise its frame is refused.
    pub keep_unreadable: bool,
}

impl Profile {
    /// The profile of our own frames, and required of peers by default.
    pub const STRICT: Profile = Profile { bit_order: BitOrder::LeastFirst, keep_unreadable: false };
    /// For peers that put the value of another type into a TLV.
    pub const LENIENT: Profile = Profile { bit_order: BitOrder::LeastFirst, keep_unreadable: true };
}

impl Default for Profile {
    fn default() -> Profile {
        Profile::STRICT
    }
}
