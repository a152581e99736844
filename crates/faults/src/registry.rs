//! The registered protocols.

use crate::Machines;

impl Machines {
    /// All protocols.
    pub const ALL: [Machines; 5] = [
        Machines(&crate::tunnel::Tunnel),
        Machines(&crate::estimators::Keepalive),
        Machines(&crate::echo::Echo),
        Machines(&crate::pmip::Pmip),
        Machines(&crate::mih::Mih),
    ];

    /// The protocol with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Machines> {
        Machines::ALL.into_iter().find(|machines| machines.name() == name)
    }
}
