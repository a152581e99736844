//! Where a host's interface stands at a gateway (paper 3, fig. 5; RFC 5213, 6.9).

/// Where a host's interface stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StationState {
    /// It is being found out who it is.
    Identifying,
    /// A temporary entry: the anchor has not answered. Nothing is advertised or forwarded.
    Registering,
    /// It has its prefixes.
    Active,
    /// It has them, and is asked whether it is still there, since its registration is to be renewed.
    Probing,
    /// It has left, and the anchor has not confirmed that.
    Leaving,
}

/// What moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It is known who it is.
    Identified,
    /// The anchor has accepted the registration.
    Accepted,
    /// The anchor has refused it, or has revoked it.
    Refused,
    /// The registration is to be renewed, and the host is asked.
    Asked,
    /// The host has answered.
    Answered,
    /// The registration has ended without an answer to its renewal.
    Over,
    /// The host has left, or does not answer.
    Left,
    /// The anchor has confirmed that it has left, or has not for long enough.
    Confirmed,
}

/// Where an event leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Here.
    To(StationState),
    /// The entry is gone.
    Gone,
    /// The event says nothing here.
    Same,
}

impl StationState {
    /// Its name in output.
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

    /// Whether its traffic is carried.
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
