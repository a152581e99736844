//! Identifiers of links and networks.

use alloc::vec::Vec;

use super::codes::{LinkSubtype, LinkType};
use super::profile::BitOrder;
use super::value::{OctetString, Value, choice, sequence, write_length};
use crate::WireError;
use crate::layout::{Reader, Wire, hex};

/// Address family of a MAC address (IANA, "802").
const FAMILY_802: u16 = 6;

/// MAC_ADDR: an address of a family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct MacAddress {
    /// IANA's number of the family, 6 for IEEE 802.
    pub family: u16,
    /// The address, 6 bytes in family 6.
    #[serde(serialize_with = "hex")]
    pub address: Vec<u8>,
}

impl Value for MacAddress {
    fn decode(reader: &mut Reader<'_>, order: BitOrder) -> Result<Self, WireError> {
        let family = Wire::read(reader)?;
        OctetString::decode(reader, order)
            .map(|OctetString(address)| MacAddress { family, address })
    }

    fn encode(&self, _: BitOrder, out: &mut Vec<u8>) {
        self.family.write(out);
        write_length(self.address.len(), out);
        out.extend(&self.address);
    }
}

choice! {
    /// LINK_ADDR: the link-layer address of an interface or a point of attachment.
    #[derive(PartialOrd, Ord)]
    pub enum LinkAddress "LINK_ADDR" {
        /// MAC_ADDR.
        0 Mac(MacAddress),
        /// 3GPP_3G_CELL_ID.
        1 Cell3g(Cell3g),
        /// 3GPP_2G_CELL_ID.
        2 Cell2g(Cell2g),
        /// 3GPP_ADDR.
        3 Address3gpp(OctetString),
        /// 3GPP2_ADDR.
        4 Address3gpp2(OctetString),
        /// OTHER_L2_ADDR.
        5 Other(OctetString),
    }
}

impl LinkAddress {
    /// The address of an IEEE 802 interface.
    #[must_use]
    pub fn mac(address: [u8; 6]) -> LinkAddress {
        LinkAddress::Mac(MacAddress { family: FAMILY_802, address: address.to_vec() })
    }

    /// The address, if it is a valid IEEE 802 address.
    #[must_use]
    pub fn as_mac(&self) -> Option<[u8; 6]> {
        match self {
            LinkAddress::Mac(MacAddress { family: FAMILY_802, address }) => {
                address.as_slice().try_into().ok()
            }
            _ => None,
        }
    }
}

sequence! {
    /// 3GPP_3G_CELL_ID.
    #[derive(PartialOrd, Ord)]
    pub struct Cell3g {
        /// PLMN_ID.
        plmn_id: [u8; 3],
        /// CELL_ID.
        cell_id: u32,
    }

    /// 3GPP_2G_CELL_ID.
    #[derive(PartialOrd, Ord)]
    pub struct Cell2g {
        /// PLMN_ID.
        plmn_id: [u8; 3],
        /// Location Area Code.
        lac: u16,
        /// Cell Identity.
        ci: u16,
    }

    /// LINK_ID: an interface.
    #[derive(PartialOrd, Ord)]
    pub struct LinkId {
        /// LINK_TYPE.
        link_type: LinkType,
        /// Its address.
        address: LinkAddress,
    }

    /// LINK_TUPLE_ID: an interface and its point of attachment.
    pub struct LinkTupleId {
        /// The interface.
        link: LinkId,
        /// The point of attachment.
        #[serde(skip_serializing_if = "Option::is_none")]
        poa: Option<LinkAddress>,
    }

    /// NETWORK_TYPE.
    pub struct NetworkType {
        /// LINK_TYPE.
        #[serde(skip_serializing_if = "Option::is_none")]
        link_type: Option<LinkType>,
        /// LINK_SUBTYPE.
        #[serde(skip_serializing_if = "Option::is_none")]
        subtype: Option<LinkSubtype>,
        /// TYPE_EXT.
        #[serde(skip_serializing_if = "Option::is_none")]
        extension: Option<OctetString>,
    }

    /// NET_TYPE_ADDR: the type of a network and the address of a link.
    pub struct NetworkTypeAddress {
        /// The type.
        network_type: NetworkType,
        /// The link's address.
        address: LinkAddress,
    }

    /// MBB_HO_SUPP: whether a handover between two networks keeps the old link until the new one is up.
    pub struct MakeBeforeBreak {
        /// The old network.
        from: NetworkType,
        /// The new network.
        to: NetworkType,
        /// True if it does.
        supported: bool,
    }

    /// An element of LIST(LINK_ID, LIST(LINK_ADDR)): an interface and its points of attachment.
    pub struct LinkPoas {
        /// The interface.
        link: LinkId,
        /// The points of attachment.
        poas: Vec<LinkAddress>,
    }
}
