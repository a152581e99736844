//! What a function tells: news for people and pages, and what it refused.

use alloc::collections::BTreeMap;
use core::fmt;

use segue_wire::mih::identity::LinkAddress;

use crate::{Event, Name, What};

/// News of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Somebody has registered here.
    Registered(Name),
    /// Somebody has deregistered, or has not been heard in time.
    Gone(Name),
    /// It is registered at this function.
    RegisteredAt(Name),
    /// A function does not answer, or does not know it any more.
    Lost(Name),
    /// A function has never answered: told once.
    Silent(core::net::IpAddr),
    /// Something happened to a link that it knows.
    Link(Event),
}

impl Report {
    /// The link's event, in a word.
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

/// A name as text.
struct Text<'a>(&'a Name);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.0.escape_ascii())
    }
}

/// The address of a link or a station as text.
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
    /// It is no frame, or lacks what it has to have.
    Malformed,
    /// It is a fragment: none are put together.
    Fragment,
    /// It is for another function.
    Destination,
    /// Its sender may not register here.
    Stranger,
    /// Its sender has not registered.
    NotRegistered,
    /// Another node has registered with that name.
    NameTaken,
    /// There is no room for another.
    Full,
    /// It answers nothing that was asked, or nothing any more.
    Stale,
    /// There is no such link, or it is another's.
    Link,
    /// What it asks for is not done here.
    NotServed,
    /// It is too long to be sent over UDP.
    TooLong,
}

impl Refusal {
    /// Its name in counts.
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
