//! State of a station at a gateway (paper 3, figure 5; RFC 5213, section 6.9).

/// State of a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StationState {
    /// The driver is identifying the host.
    Identifying,
    /// Temporary entry: the anchor has not answered. Nothing is advertised or forwarded.
    Registering,
    /// The station is registered and has its prefixes.
    Active,
    /// Still served, but probed before its registration is renewed.
    Probing,
    /// The host has left, and the anchor has not confirmed that.
    Leaving,
}

/// Events that change the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The host was identified.
    Identified,
    /// The anchor has accepted the registration.
    Accepted,
    /// The anchor has refused or revoked the registration.
    Refused,
    /// The registration needs renewal, and the host is probed.
    Asked,
    /// The host has answered.
    Answered,
    /// The registration has expired without a renewal.
    Over,
    /// The host has left, or does not answer.
    Left,
    /// The anchor has confirmed the deregistration, or has not answered in time.
    Confirmed,
}

/// Result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Enters this state.
    To(StationState),
    /// The entry is removed.
    Gone,
    /// The event has no effect.
    Same,
}

impl StationState {
    /// Name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StationState::Identifying => "identifying",
            StationState::Registering => "registering",
            StationState::Active => "active",
            StationState::Probing => "probing",
            StationState::Leaving => "leaving",
        }
    }

    /// Returns true if the station's traffic is forwarded.
    #[must_use]
    pub fn is_served(self) -> bool {
        matches!(self, StationState::Active | StationState::Probing)
    }

    /// The transition table.
    pub(super) fn next(self, event: Event) -> Next {
        use StationState::{Active, Identifying, Leaving, Probing, Registering};
        match (self, event) {
            (Identifying, Event::Identified) => Next::To(Registering),
            (Registering | Active, Event::Accepted) => Next::To(Active),
            (Active, Event::Over) => Next::To(Registering),
            (Active, Event::Asked) => Next::To(Probing),
            (Probing, Event::Answered) => Next::To(Active),
            (Registering | Active | Probing, Event::Left) => Next::To(Leaving),
            (Identifying, Event::Refused | Event::Left)
            | (Registering | Active | Probing, Event::Refused)
            | (Leaving, Event::Confirmed | Event::Refused) => Next::Gone,
            _ => Next::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_states() {
        use StationState::{Active, Identifying, Leaving, Probing, Registering};
        let table = [
            (Identifying, "Identified Registering, Refused gone, Left gone"),
            (Registering, "Accepted Active, Refused gone, Left Leaving"),
            (
                Active,
                "Accepted Active, Refused gone, Asked Probing, Over Registering, Left Leaving",
            ),
            (Probing, "Refused gone, Answered Active, Left Leaving"),
            (Leaving, "Refused gone, Confirmed gone"),
        ];
        for (state, expected) in table {
            let events = [
                Event::Identified,
                Event::Accepted,
                Event::Refused,
                Event::Asked,
                Event::Answered,
                Event::Over,
                Event::Left,
                Event::Confirmed,
            ];
            let moves = events.into_iter().filter_map(|event| match state.next(event) {
                Next::To(next) => Some(alloc::format!("{event:?} {next:?}")),
                Next::Gone => Some(alloc::format!("{event:?} gone")),
                Next::Same => None,
            });
            let moves: alloc::vec::Vec<_> = moves.collect();
            assert_eq!(moves.join(", "), expected, "{state:?}");
        }
    }
}
