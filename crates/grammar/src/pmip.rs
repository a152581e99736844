//! Proxy Mobile IPv6 keys that its daemons' files and scenarios share.

use anyhow::{Context, bail};
use segue_pmip::{Rated, Schedule, Worth};
use segue_wire::mih::codes::LinkType;
use segue_wire::mobility::option::{AccessTechnology, Handoff};
use serde::Deserialize;

use crate::PrefixText;

/// How an anchor assigns flows to interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleKey {
    /// To the interface that holds the flow's prefix.
    Static,
    /// By a hash of addresses, ports and protocol.
    Hash,
    /// At random.
    Random,
    /// To the interface with the fewest flows.
    LeastLoaded,
    /// To the cheapest interface; among equally cheap ones, to the most preferred.
    Preferred,
    /// To the interface that serves the flow's class best.
    Quality,
}

/// Access technologies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TechnologyKey {
    /// A virtual or logical interface.
    Virtual,
    /// Point-to-point protocol.
    Ppp,
    /// IEEE 802.3.
    Ethernet,
    /// IEEE 802.11.
    Wlan,
    /// IEEE 802.16e.
    Wimax,
    /// 3GPP's second generation.
    Geran,
    /// 3GPP's third generation.
    Utran,
    /// 3GPP's fourth generation.
    EUtran,
}

/// The price and the preference of accesses, for an anchor.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorthKeys {
    /// Technology of the accesses; any.
    technology: Option<TechnologyKey>,
    /// Address of their gateway, or a prefix that covers several gateways; any.
    gateway: Option<PrefixText>,
    /// Relative price per byte, 0.
    price: Option<f64>,
    /// Score points of the access, 0.
    preference: Option<f64>,
}

impl WorthKeys {
    /// Validates the entries for an anchor with this schedule.
    ///
    /// # Errors
    /// The schedule ignores such entries, or requires one that is missing; or an entry is invalid.
    pub fn all(keys: Vec<WorthKeys>, schedule: ScheduleKey) -> anyhow::Result<Vec<Rated>> {
        match (schedule, keys.is_empty()) {
            (ScheduleKey::Preferred, true) => {
                bail!("schedule = \"preferred\" needs an [[access]] with a price or a preference")
            }
            (ScheduleKey::Preferred | ScheduleKey::Quality, _) | (_, true) => {}
            (_, false) => {
                bail!("[[access]] counts with schedule = \"preferred\" or \"quality\" alone")
            }
        }
        keys.into_iter().map(|keys| keys.validate().context("[[access]]")).collect()
    }

    /// Validates the entry.
    ///
    /// # Errors
    /// The price is negative, or a value is not a number.
    pub fn validate(self) -> anyhow::Result<Rated> {
        let (price, preference) = (self.price.unwrap_or(0.0), self.preference.unwrap_or(0.0));
        if !(price.is_finite() && price >= 0.0 && preference.is_finite()) {
            bail!("price must be zero or more, and preference a number");
        }
        Ok(Rated {
            access: self.technology.map(TechnologyKey::code),
            gateway: self.gateway.map(|PrefixText(prefix)| prefix),
            worth: Worth { price, preference },
        })
    }
}

/// How a host attached to an access (Handoff Indicator).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandoffKey {
    /// Attachment over a new interface.
    NewInterface,
    /// Handoff between two interfaces of the host.
    BetweenInterfaces,
    /// Handoff of the same interface between gateways.
    BetweenGateways,
    /// Unknown.
    Unknown,
    /// A further interface, which shares the prefixes.
    Sharing,
}

impl ScheduleKey {
    /// The anchor's schedule.
    #[must_use]
    pub fn schedule(self) -> Schedule {
        match self {
            ScheduleKey::Static => Schedule::Static,
            ScheduleKey::Hash => Schedule::Hash,
            ScheduleKey::Random => Schedule::Random,
            ScheduleKey::LeastLoaded => Schedule::LeastLoaded,
            ScheduleKey::Preferred => Schedule::Preferred,
            ScheduleKey::Quality => Schedule::Quality,
        }
    }
}

impl TechnologyKey {
    /// The link type of IEEE 802.21-2008, which has none for later cellular networks.
    #[must_use]
    pub fn link_type(self) -> LinkType {
        match self {
            TechnologyKey::Ethernet | TechnologyKey::Virtual | TechnologyKey::Ppp => {
                LinkType::ETHERNET
            }
            TechnologyKey::Wlan => LinkType::IEEE_802_11,
            TechnologyKey::Wimax => LinkType::IEEE_802_16,
            TechnologyKey::Geran => LinkType::GSM,
            TechnologyKey::Utran => LinkType::UMTS,
            TechnologyKey::EUtran => LinkType::WIRELESS_OTHER,
        }
    }

    /// The value on the wire.
    #[must_use]
    pub fn code(self) -> AccessTechnology {
        match self {
            TechnologyKey::Virtual => AccessTechnology::VIRTUAL,
            TechnologyKey::Ppp => AccessTechnology::PPP,
            TechnologyKey::Ethernet => AccessTechnology::ETHERNET,
            TechnologyKey::Wlan => AccessTechnology::WLAN,
            TechnologyKey::Wimax => AccessTechnology::WIMAX,
            TechnologyKey::Geran => AccessTechnology::GERAN,
            TechnologyKey::Utran => AccessTechnology::UTRAN,
            TechnologyKey::EUtran => AccessTechnology::E_UTRAN,
        }
    }
}

impl HandoffKey {
    /// The value on the wire.
    #[must_use]
    pub fn code(self) -> Handoff {
        match self {
            HandoffKey::NewInterface => Handoff::NEW_INTERFACE,
            HandoffKey::BetweenInterfaces => Handoff::BETWEEN_INTERFACES,
            HandoffKey::BetweenGateways => Handoff::BETWEEN_GATEWAYS,
            HandoffKey::Unknown => Handoff::UNKNOWN,
            HandoffKey::Sharing => Handoff::NEW_INTERFACE_SHARING_PREFIXES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_have_a_worth_where_that_counts_and_one_that_is_a_price() {
        let keys = |price| {
            Vec::from([WorthKeys { technology: None, gateway: None, price, preference: None }])
        };
        let all = |keys, schedule| WorthKeys::all(keys, schedule).map_err(|why| format!("{why:#}"));
        assert_eq!(all(keys(Some(1.0)), ScheduleKey::Quality).unwrap()[0].worth.price, 1.0);
        assert_eq!(all(Vec::new(), ScheduleKey::Static), Ok(Vec::new()));
        for (keys, schedule, expected) in [
            (keys(None), ScheduleKey::Hash, "counts with"),
            (Vec::new(), ScheduleKey::Preferred, "needs an [[access]]"),
            (keys(Some(-1.0)), ScheduleKey::Preferred, "price must be zero or more"),
        ] {
            let said = all(keys, schedule).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }
}
