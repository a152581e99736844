//! Classes of flows, and how a flow's class is read from its packets.

use core::fmt;

use segue_wire::FlowKey;

use crate::Config;

/// What a flow requires of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Conversations: sensitive to delay and loss; the rate does not matter.
    Voice,
    /// A user waits for each answer: terminals, DNS, games.
    Interactive,
    /// Bulk transfer: no user waits for a single packet.
    Bulk,
    /// Unknown, or mixed such as web traffic.
    Default,
}

impl Class {
    /// Every class, in order.
    pub const ALL: [Class; 4] = [Class::Voice, Class::Interactive, Class::Bulk, Class::Default];

    /// Its name in output and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Voice => "voice",
            Class::Interactive => "interactive",
            Class::Bulk => "bulk",
            Class::Default => "default",
        }
    }

    /// The class with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The class of a flow: by DSCP if the configuration lists it, otherwise by port (the destination port first),
/// otherwise [`Class::Default`].
///
/// Both ports are checked because either end may classify the flow. Packet sizes and timing are not used, so that the
/// class of a flow's first packet is final and explainable.
#[must_use]
pub fn classify(key: &FlowKey, dscp: u8, config: &Config) -> Class {
    let by_port = || config.ports.get(&key.dport).or_else(|| config.ports.get(&key.sport));
    config.dscp.get(&dscp).or_else(by_port).copied().unwrap_or(Class::Default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    fn key(sport: u16, dport: u16) -> FlowKey {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        FlowKey { src: address, dst: address, sport, dport, protocol: 17, label: 0 }
    }

    #[test]
    fn a_code_point_decides_before_any_port() {
        let config = Config::default();
        assert_eq!(classify(&key(40_000, 22), 46, &config), Class::Voice);
        assert_eq!(classify(&key(40_000, 22), 8, &config), Class::Bulk);
        assert_eq!(classify(&key(40_000, 22), 0, &config), Class::Interactive);
    }

    #[test]
    fn a_flow_has_the_same_class_from_both_ends() {
        let config = Config::default();
        for (port, class) in [
            (5060, Class::Voice),
            (3478, Class::Voice),
            (53, Class::Interactive),
            (873, Class::Bulk),
            (443, Class::Default),
        ] {
            assert_eq!(classify(&key(40_000, port), 0, &config), class, "to {port}");
            assert_eq!(classify(&key(port, 40_000), 0, &config), class, "from {port}");
        }
    }

    #[test]
    fn what_nothing_is_known_of_is_default() {
        assert_eq!(classify(&key(0, 0), 0, &Config::default()), Class::Default);
        assert_eq!(classify(&key(40_000, 40_001), 63, &Config::default()), Class::Default);
    }

    #[test]
    fn names_lead_back_to_their_class() {
        for class in Class::ALL {
            assert_eq!(Class::from_name(class.name()), Some(class));
        }
        assert_eq!(Class::from_name("video"), None);
    }
}
