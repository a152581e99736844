//! What happens to a link, in the words of IEEE 802.21's link service access point.

/// Something that the link of an interface tells. A driver gives it to machines that ask for more than the state of the
/// interfaces. A point of attachment (PoA) is numbered, unlike any other that the interface can reach: an access point's
/// hardware address, for instance; a wire has none. An interface that can be attached to two at a time tells of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Link_Up: the interface with this index is attached, and packets can come and go.
    Up {
        /// The interface.
        interface: u32,
        /// What it is attached to.
        poa: Option<u64>,
    },
    /// Link_Down: it is not any more.
    Down {
        /// The interface.
        interface: u32,
        /// What it was attached to.
        poa: Option<u64>,
        /// Why.
        why: DownReason,
    },
    /// Link_Going_Down: it is about to be left.
    GoingDown {
        /// The interface.
        interface: u32,
        /// What it is attached to.
        poa: Option<u64>,
        /// When, in milliseconds from this event on; the largest value stands for more too.
        within_ms: u16,
    },
}

/// Why a link is down (LINK_DN_REASON).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// One of its ends has left.
    ExplicitDisconnect,
    /// Nothing comes from the other end, not even a carrier.
    PacketTimeout,
}
