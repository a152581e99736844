//! The registered protocols.

use crate::Machines;

impl Machines {
    /// All protocols.
    pub const ALL: [Machines; 6] = [
        Machines(&crate::tunnel::Tunnel),
        Machines(&crate::estimators::Keepalive),
        Machines(&crate::echo::Echo),
        Machines(&crate::pmip::Pmip { servers: false }),
        Machines(&crate::pmip::Pmip { servers: true }),
        Machines(&crate::mih::Mih),
    ];

    /// The protocol with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Machines> {
        Machines::ALL.into_iter().find(|machines| machines.name() == name)
    }
}
