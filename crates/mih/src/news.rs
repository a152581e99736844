//! Reports of a function, and its reasons to refuse a frame.

use alloc::collections::BTreeMap;
use core::fmt;

use segue_wire::mih::identity::LinkAddress;

use crate::{Event, Name, What};

/// A report for the log and status pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A peer registered here.
    Registered(Name),
    /// A peer deregistered, or its registration expired.
    Gone(Name),
    /// We registered at this function.
    RegisteredAt(Name),
    /// The function stopped answering, or lost our registration.
    Lost(Name),
    /// The function at this address has never answered; reported once.
    Silent(core::net::IpAddr),
    /// A link event.
    Link(Event),
}

impl Report {
    /// Its name in status output.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Report::Registered(_) => "registered",
            Report::Gone(_) => "gone",
            Report::RegisteredAt(_) => "registered_at",
            Report::Lost(_) => "lost",
            Report::Silent(_) => "silent",
            Report::Link(event) => match event.what {
                What::Detected(_) => "link_detected",
                What::Up => "link_up",
                What::Down(_) => "link_down",
                What::GoingDown { .. } => "link_going_down",
                What::Parameters(_) => "link_parameters_report",
            },
        }
    }
}

/// An MIHF ID as text.
struct Text<'a>(&'a Name);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.0.escape_ascii())
    }
}

/// A link or station address as text.
struct Address<'a>(&'a LinkAddress);

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mac) = self.0.as_mac() else { return write!(f, "{:?}", self.0) };
        for (n, byte) in mac.into_iter().enumerate() {
            let colon = if n == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Registered(name) => write!(f, "{} has registered", Text(name)),
            Report::Gone(name) => write!(f, "{} is not registered any more", Text(name)),
            Report::RegisteredAt(name) => write!(f, "registered at {}", Text(name)),
            Report::Lost(name) => write!(f, "not registered at {} any more", Text(name)),
            Report::Silent(address) => write!(
                f,
                "the function at {address} does not answer: is it running, and are we among its peers?"
            ),
            Report::Link(Event { link, station, what }) => {
                let link = Address(&link.address);
                match station {
                    Some(station) => write!(f, "{} at {link}", Address(station))?,
                    None => write!(f, "{link}")?,
                }
                match what {
                    What::Detected(_) => write!(f, ": links were detected"),
                    What::Up => write!(f, ": attached"),
                    What::Down(reason) => {
                        write!(f, ": left ({})", reason.name().unwrap_or("no known reason"))
                    }
                    What::GoingDown { within_ms, .. } => {
                        write!(f, ": about to leave, within {within_ms} ms")
                    }
                    What::Parameters(_) => write!(f, ": parameters"),
                }
            }
        }
    }
}

/// Why a frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Not a valid frame, or a mandatory TLV is missing.
    Malformed,
    /// A fragment; reassembly is not implemented.
    Fragment,
    /// Addressed to another MIHF ID.
    Destination,
    /// The sender's address may not register here.
    Stranger,
    /// The sender has not registered.
    NotRegistered,
    /// The name is registered from another address.
    NameTaken,
    /// A table is full.
    Full,
    /// The answer to no pending request.
    Stale,
    /// The link is unknown, or the peer does not own it.
    Link,
    /// The request is not supported.
    NotServed,
    /// Too long for one UDP datagram.
    TooLong,
}

impl Refusal {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Fragment => "fragment",
            Refusal::Destination => "destination",
            Refusal::Stranger => "stranger",
            Refusal::NotRegistered => "not_registered",
            Refusal::NameTaken => "name_taken",
            Refusal::Full => "full",
            Refusal::Stale => "stale",
            Refusal::Link => "link",
            Refusal::NotServed => "not_served",
            Refusal::TooLong => "too_long",
        }
    }
}

/// Refused frames by reason.
pub type Refused = BTreeMap<Refusal, u64>;
