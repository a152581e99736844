//! Message identifiers: service, operation and action.

use serde::Serialize;

use crate::layout::codes;

codes! {
    /// Service identifier (IEEE 802.21-2008, 8.4.1).
    pub struct Service(u8) {
        MANAGEMENT = 1 "Service Management",
        EVENT = 2 "Event Service",
        COMMAND = 3 "Command Service",
        INFORMATION = 4 "Information Service",
    }

    /// Operation code (IEEE 802.21-2008, 8.4.1).
    pub struct Opcode(u8) {
        CONFIRM = 0 "confirm",
        REQUEST = 1 "request",
        RESPONSE = 2 "response",
        INDICATION = 3 "indication",
    }
}

/// The message identifier: SID (4 bits), operation code (2 bits) and AID (10 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MessageId(pub u16);

/// Defines the names of messages by service and action.
macro_rules! messages {
    ($($service:literal $action:literal $constant:ident $name:literal,)*) => {
        impl MessageId {
            $(
                #[doc = concat!($name, ", the request or, without one, the indication.")]
                pub const $constant: MessageId = MessageId::listed($service, $action);
            )*

            /// The standard's name of the primitive, such as "MIH_Link_Up indication".
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match (self.service().0, self.action(), self.opcode().0) {
                    $(
                        ($service, $action, 0) => Some(concat!($name, " confirm")),
                        ($service, $action, 1) => Some(concat!($name, " request")),
                        ($service, $action, 2) => Some(concat!($name, " response")),
                        ($service, $action, _) => Some(concat!($name, " indication")),
                    )*
                    _ => None,
                }
            }
        }
    };
}

messages! {
    1 1 CAPABILITY_DISCOVER "MIH_Capability_Discover",
    1 2 REGISTER "MIH_Register",
    1 3 DEREGISTER "MIH_DeRegister",
    1 4 EVENT_SUBSCRIBE "MIH_Event_Subscribe",
    1 5 EVENT_UNSUBSCRIBE "MIH_Event_Unsubscribe",
    2 1 LINK_DETECTED "MIH_Link_Detected",
    2 2 LINK_UP "MIH_Link_Up",
    2 3 LINK_DOWN "MIH_Link_Down",
    2 5 LINK_PARAMETERS_REPORT "MIH_Link_Parameters_Report",
    2 6 LINK_GOING_DOWN "MIH_Link_Going_Down",
    2 7 LINK_HANDOVER_IMMINENT "MIH_Link_Handover_Imminent",
    2 8 LINK_HANDOVER_COMPLETE "MIH_Link_Handover_Complete",
    2 9 LINK_PDU_TRANSMIT_STATUS "MIH_Link_PDU_Transmit_Status",
    3 1 LINK_GET_PARAMETERS "MIH_Link_Get_Parameters",
    3 2 LINK_CONFIGURE_THRESHOLDS "MIH_Link_Configure_Thresholds",
    3 3 LINK_ACTIONS "MIH_Link_Actions",
    3 4 NET_HO_CANDIDATE_QUERY "MIH_Net_HO_Candidate_Query",
    3 5 MN_HO_CANDIDATE_QUERY "MIH_MN_HO_Candidate_Query",
    3 6 N2N_HO_QUERY_RESOURCES "MIH_N2N_HO_Query_Resources",
    3 7 MN_HO_COMMIT "MIH_MN_HO_Commit",
    3 8 NET_HO_COMMIT "MIH_Net_HO_Commit",
    3 9 N2N_HO_COMMIT "MIH_N2N_HO_Commit",
    3 10 MN_HO_COMPLETE "MIH_MN_HO_Complete",
    3 11 N2N_HO_COMPLETE "MIH_N2N_HO_Complete",
    4 1 GET_INFORMATION "MIH_Get_Information",
    4 2 PUSH_INFORMATION "MIH_Push_Information",
}

impl MessageId {
    const fn listed(service: u8, action: u16) -> MessageId {
        let is_indicated = matches!((service, action), (2, _) | (4, 2));
        let opcode = if is_indicated { Opcode::INDICATION } else { Opcode::REQUEST };
        MessageId((service as u16) << 12 | (opcode.0 as u16) << 10 | action)
    }

    /// The same service and action with another operation code, truncated to two bits.
    #[must_use]
    pub const fn with_opcode(self, opcode: Opcode) -> MessageId {
        MessageId(self.0 & !0x0c00 | ((opcode.0 & 3) as u16) << 10)
    }

    /// SID.
    #[must_use]
    pub const fn service(self) -> Service {
        Service((self.0 >> 12) as u8)
    }

    /// Operation code.
    #[must_use]
    pub const fn opcode(self) -> Opcode {
        Opcode((self.0 >> 10 & 3) as u8)
    }

    /// AID.
    #[must_use]
    pub const fn action(self) -> u16 {
        self.0 & 0x03ff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_their_numbers_and_names() {
        for (id, number, name) in [
            (MessageId::LINK_UP, 0x2c02, "MIH_Link_Up indication"),
            (MessageId::LINK_DOWN, 0x2c03, "MIH_Link_Down indication"),
            (MessageId::LINK_GOING_DOWN, 0x2c06, "MIH_Link_Going_Down indication"),
            (MessageId::EVENT_SUBSCRIBE, 0x1404, "MIH_Event_Subscribe request"),
            (
                MessageId::EVENT_SUBSCRIBE.with_opcode(Opcode::RESPONSE),
                0x1804,
                "MIH_Event_Subscribe response",
            ),
            (MessageId::CAPABILITY_DISCOVER, 0x1401, "MIH_Capability_Discover request"),
            (MessageId::PUSH_INFORMATION, 0x4c02, "MIH_Push_Information indication"),
        ] {
            assert_eq!((id.0, id.name()), (number, Some(name)));
            let parts = (id.service().0.into(), id.opcode().0.into(), id.action());
            assert_eq!(parts, (number >> 12, number >> 10 & 3, number & 0x3ff));
        }
        assert_eq!(MessageId(0x2c04).name(), None);
        assert_eq!(MessageId(0x5401).name(), None);
    }
}
