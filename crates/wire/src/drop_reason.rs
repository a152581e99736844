//! The reasons for which the packet path drops a packet.

use core::fmt;

/// Why a packet was dropped. The eBPF programs use the same numbers (`segue.bpf.h`); metrics and documentation use the
/// same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum DropReason {
    /// Shorter than its format requires.
    Truncated = 0,
    /// A version other than 1.
    Version = 1,
    /// An unknown packet type.
    Type = 2,
    /// A field that must be zero is not, or a value is undefined.
    Field = 3,
    /// No path has this tunnel index.
    UnknownIndex = 4,
    /// The cookie is not the path's.
    Cookie = 5,
    /// The probe's authenticator is wrong.
    Mac = 6,
    /// The probe's sequence number was seen before or is too old.
    Replay = 7,
    /// The inner source is not an address of the path's host.
    InnerSource = 8,
    /// The inner destination is not an address of this host (host side).
    InnerDestination = 9,
    /// The inner packet is neither IPv4 nor IPv6, or shorter than its header states.
    InnerPacket = 10,
    /// The path to send on has no known remote endpoint.
    NoRemote = 11,
    /// The kernel did not encapsulate the packet, not even from user space.
    Encapsulation = 12,
    /// The kernel did not decapsulate the packet.
    Decapsulation = 13,
    /// The inner destination belongs to no host (anchor side).
    NoHost = 14,
    /// A queue to user space was full.
    QueueFull = 15,
    /// It bypassed the tunnel: it was sent to an inner address of this host or (anchor side) from an inner address.
    PastTunnel = 16,
    /// The anchor's settings do not allow hosts to reach that destination.
    NotAllowed = 17,
    /// A host exceeded its quota of the anchor's flow table.
    TooManyFlows = 18,
    /// A super-packet that a device on the way should have segmented but did not.
    Uncut = 19,
    /// The relay has no binding for it.
    NoBinding = 20,
    /// Its flow is bound to be dropped.
    Denied = 21,
    /// It was held, and too many later packets displaced it.
    HoldFull = 22,
    /// It was held as long as its binding allows.
    HoldExpired = 23,
    /// A router on the tunnel's way reported it as too big.
    TooBig = 24,
}

impl DropReason {
    /// All reasons, ordered by number.
    pub const ALL: [DropReason; 25] = [
        DropReason::Truncated,
        DropReason::Version,
        DropReason::Type,
        DropReason::Field,
        DropReason::UnknownIndex,
        DropReason::Cookie,
        DropReason::Mac,
        DropReason::Replay,
        DropReason::InnerSource,
        DropReason::InnerDestination,
        DropReason::InnerPacket,
        DropReason::NoRemote,
        DropReason::Encapsulation,
        DropReason::Decapsulation,
        DropReason::NoHost,
        DropReason::QueueFull,
        DropReason::PastTunnel,
        DropReason::NotAllowed,
        DropReason::TooManyFlows,
        DropReason::Uncut,
        DropReason::NoBinding,
        DropReason::Denied,
        DropReason::HoldFull,
        DropReason::HoldExpired,
        DropReason::TooBig,
    ];

    /// The name used in output and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Truncated => "truncated",
            DropReason::Version => "version",
            DropReason::Type => "type",
            DropReason::Field => "field",
            DropReason::UnknownIndex => "unknown_index",
            DropReason::Cookie => "cookie",
            DropReason::Mac => "mac",
            DropReason::Replay => "replay",
            DropReason::InnerSource => "inner_source",
            DropReason::InnerDestination => "inner_destination",
            DropReason::InnerPacket => "inner_packet",
            DropReason::NoRemote => "no_remote",
            DropReason::Encapsulation => "encapsulation",
            DropReason::Decapsulation => "decapsulation",
            DropReason::NoHost => "no_host",
            DropReason::QueueFull => "queue_full",
            DropReason::PastTunnel => "past_tunnel",
            DropReason::NotAllowed => "not_allowed",
            DropReason::TooManyFlows => "too_many_flows",
            DropReason::Uncut => "uncut",
            DropReason::NoBinding => "no_binding",
            DropReason::Denied => "denied",
            DropReason::HoldFull => "hold_full",
            DropReason::HoldExpired => "hold_expired",
            DropReason::TooBig => "too_big",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<crate::WireError> for DropReason {
    fn from(error: crate::WireError) -> DropReason {
        use crate::WireError as E;
        match error {
            E::TooShort { .. } => DropReason::Truncated,
            E::Version { .. } => DropReason::Version,
            E::Type { .. } => DropReason::Type,
            E::Field { .. } | E::Length { .. } | E::Signal => DropReason::Field,
            E::Mac => DropReason::Mac,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn numbers_follow_the_order_of_the_list() {
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i);
        }
    }

    #[test]
    fn each_reason_is_shown_by_a_name_of_its_own() {
        let mut names = DropReason::ALL.map(|reason| format!("{reason}"));
        names.sort();
        let (first, last) = (names.first().unwrap(), names.last().unwrap());
        assert_eq!([first.as_str(), last.as_str()], ["cookie", "version"]);
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
