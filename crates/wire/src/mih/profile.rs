//! How a peer writes what the standard leaves open.

/// Which bit of a BITMAP is bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BitOrder {
    /// The least significant bit of the last octet, as ODTONE and OAI-PMIPv6-FM have it: a BITMAP is a number.
    #[default]
    LeastFirst,
    /// The most significant bit of the first octet, as tshark shows it.
    MostFirst,
}

/// How frames are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The order of the bits of every BITMAP.
    pub bit_order: BitOrder,
    /// A TLV whose value does not have its type's format is kept as it came. Otherwise its frame is refused.
    pub keep_unreadable: bool,
}

impl Profile {
    /// What we send, and what a peer has to.
    pub const STRICT: Profile = Profile { bit_order: BitOrder::LeastFirst, keep_unreadable: false };
    /// For peers that put another type's value into a TLV.
    pub const LENIENT: Profile = Profile { bit_order: BitOrder::LeastFirst, keep_unreadable: true };
}

impl Default for Profile {
    fn default() -> Profile {
        Profile::STRICT
    }
}
