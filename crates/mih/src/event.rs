//! Link events, and their encoding in frames.

use alloc::vec::Vec;

use segue_wire::mih::codes::{EventList, LinkDownReason, LinkGoingDownReason};
use segue_wire::mih::identity::{LinkAddress, LinkId, LinkTupleId};
use segue_wire::mih::link::{LinkDetectedInfo, ParameterReport};
use segue_wire::mih::{MessageId, Tlv};

/// A link event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The link.
    pub link: LinkId,
    /// The other end, if known: the station attached to an access point.
    pub station: Option<LinkAddress>,
    /// The kind of event.
    pub what: What,
}

/// The kind of a link event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Link_Detected.
    Detected(Vec<LinkDetectedInfo>),
    /// Link_Up: the station has attached. Sent again when a predicted departure is cancelled.
    Up,
    /// Link_Down: the station has left.
    Down(LinkDownReason),
    /// Link_Going_Down: the station is about to leave.
    GoingDown {
        /// Expected time until then, in milliseconds.
        within_ms: u16,
        /// The cause.
        reason: LinkGoingDownReason,
    },
    /// Link_Parameters_Report.
    Parameters(Vec<ParameterReport>),
}

impl What {
    /// Its bit in an event list.
    #[must_use]
    pub fn kind(&self) -> EventList {
        match self {
            What::Detected(_) => EventList::LINK_DETECTED,
            What::Up => EventList::LINK_UP,
            What::Down(_) => EventList::LINK_DOWN,
            What::GoingDown { .. } => EventList::LINK_GOING_DOWN,
            What::Parameters(_) => EventList::LINK_PARAMETERS_REPORT,
        }
    }

    /// Whether the event says that a station is attached or has left.
    pub(crate) fn is_state(&self) -> bool {
        matches!(self, What::Up | What::Down(_))
    }

    pub(crate) fn message(&self) -> MessageId {
        match self {
            What::Detected(_) => MessageId::LINK_DETECTED,
            What::Up => MessageId::LINK_UP,
            What::Down(_) => MessageId::LINK_DOWN,
            What::GoingDown { .. } => MessageId::LINK_GOING_DOWN,
            What::Parameters(_) => MessageId::LINK_PARAMETERS_REPORT,
        }
    }
}

impl Event {
    /// The TLVs that follow the MIHF IDs. As in paper 3's system, Link_Up carries the station in the New Access Router
    /// TLV, and Link_Down in the Old Access Router TLV. The other events carry it as the link identifier's point of
    /// attachment.
    pub(crate) fn tlvs(&self) -> Vec<Tlv> {
        let tuple = |poa| Tlv::LinkIdentifier(LinkTupleId { link: self.link.clone(), poa });
        let station = || self.station.clone();
        match &self.what {
            What::Detected(all) => Vec::from([Tlv::LinkDetectedInfoList(all.clone())]),
            What::Up => {
                let mut tlvs = Vec::from([tuple(None)]);
                tlvs.extend(station().map(Tlv::NewAccessRouter));
                tlvs
            }
            What::Down(reason) => {
                let mut tlvs = Vec::from([tuple(None)]);
                tlvs.extend(station().map(Tlv::OldAccessRouter));
                tlvs.push(Tlv::LinkDownReason(*reason));
                tlvs
            }
            What::GoingDown { within_ms, reason } => {
                let (within, reason) =
                    (Tlv::TimeInterval(*within_ms), Tlv::LinkGoingDownReason(*reason));
                Vec::from([tuple(station()), within, reason])
            }
            What::Parameters(reports) => {
                Vec::from([tuple(station()), Tlv::LinkParameterReportList(reports.clone())])
            }
        }
    }

    /// Decodes an indication; `None` if a TLV is missing or the message is not an event.
    pub(crate) fn read(message: MessageId, tlvs: &[Tlv]) -> Option<Event> {
        let tuple = tlvs.iter().find_map(|tlv| match tlv {
            Tlv::LinkIdentifier(tuple) => Some(tuple.clone()),
            _ => None,
        });
        let what = match message {
            MessageId::LINK_DETECTED => What::Detected(tlvs.iter().find_map(|tlv| match tlv {
                Tlv::LinkDetectedInfoList(all) => Some(all.clone()),
                _ => None,
            })?),
            MessageId::LINK_UP => What::Up,
            MessageId::LINK_DOWN => What::Down(tlvs.iter().find_map(|tlv| match tlv {
                Tlv::LinkDownReason(reason) => Some(*reason),
                _ => None,
            })?),
            MessageId::LINK_GOING_DOWN => going_down(tlvs)?,
            MessageId::LINK_PARAMETERS_REPORT => {
                What::Parameters(tlvs.iter().find_map(|tlv| match tlv {
                    Tlv::LinkParameterReportList(all) => Some(all.clone()),
                    _ => None,
                })?)
            }
            _ => return None,
        };
        // Link_Detected has no station, and carries the link in its list.
        if let What::Detected(all) = &what {
            let link = all.first()?.link.link.clone();
            return Some(Event { link, station: None, what });
        }
        let LinkTupleId { link, poa } = tuple?;
        let router = tlvs.iter().find_map(|tlv| match (tlv, &what) {
            (Tlv::NewAccessRouter(station), What::Up)
            | (Tlv::OldAccessRouter(station), What::Down(_)) => Some(station.clone()),
            _ => None,
        });
        Some(Event { link, station: router.or(poa), what })
    }
}

fn going_down(tlvs: &[Tlv]) -> Option<What> {
    let within_ms = tlvs.iter().find_map(|tlv| match tlv {
        Tlv::TimeInterval(within) => Some(*within),
        _ => None,
    })?;
    let reason = tlvs.iter().find_map(|tlv| match tlv {
        Tlv::LinkGoingDownReason(reason) => Some(*reason),
        _ => None,
    })?;
    Some(What::GoingDown { within_ms, reason })
}
