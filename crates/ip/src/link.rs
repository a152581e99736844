//! Link events, as in IEEE 802.21's link service access point.

/// An event of an interface's link. A driver passes it to machines that need more than the state of the interfaces. A
/// point of attachment (PoA) has a number that is unique among those the interface can reach, for instance the hardware
/// address of an access point; a wired link has none. An interface that can attach to two PoAs at a time reports events
/// for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Link_Up: the interface is attached, and packets can pass.
    Up {
        /// The interface.
        interface: u32,
        /// The PoA.
        poa: Option<u64>,
    },
    /// Link_Down: the interface is detached.
    Down {
        /// The interface.
        interface: u32,
        /// The PoA that it was attached to.
        poa: Option<u64>,
        /// The reason.
        why: DownReason,
    },
    /// Link_Going_Down: the interface will soon be detached.
    GoingDown {
        /// The interface.
        interface: u32,
        /// The PoA.
        poa: Option<u64>,
        /// Time until then, in milliseconds from this event; `u16::MAX` also stands for longer times.
        within_ms: u16,
    },
}

/// Why a link is down (LINK_DN_REASON).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// One end has left.
    ExplicitDisconnect,
    /// Loss of carrier, or no packets from the other end.
    PacketTimeout,
}
