//! Options of proxies: Proxy Mobile IPv6 (RFC 5213, 7864), restarts (RFC 5847), groups (RFC 6602), redirection to
//! another anchor (RFC 6463), local routing (RFC 6705), multiple paths (RFC 8278).

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::WireError;
use crate::layout::{Reader, Wire, codes, flags, hex, layout};

flags! {
    /// Flags of a Home Network Prefix.
    pub struct HomeNetworkPrefixFlags(u8) {
        /// Off-link (RFC 7864): the prefix is forwarded to the mobile node, but not advertised.
        OFF_LINK = 0x80 "L",
    }

    /// Flags of a MAG Multipath Binding.
    pub struct MultipathFlags(u8) {
        /// Bulk re-registration.
        BULK = 0x80 "B",
        /// Binding overwrite.
        OVERWRITE = 0x40 "O",
    }
}

codes! {
    /// Handoff Indicator (RFC 5213, 8.4).
    pub struct Handoff(u8) {
        NEW_INTERFACE = 1 "Attachment over a new interface",
        BETWEEN_INTERFACES = 2 "Handoff between two different interfaces of the mobile node",
        BETWEEN_GATEWAYS = 3 "Handoff between mobile access gateways for the same interface",
        UNKNOWN = 4 "Handoff state unknown",
        REREGISTRATION = 5 "Handoff state not changed",
        NEW_INTERFACE_SHARING_PREFIXES = 6 "Attachment over a new interface sharing prefixes",
    }

    /// Access Technology Type (RFC 5213, 8.5).
    pub struct AccessTechnology(u8) {
        VIRTUAL = 1 "Virtual",
        PPP = 2 "PPP",
        ETHERNET = 3 "IEEE 802.3",
        WLAN = 4 "IEEE 802.11a/b/g",
        WIMAX = 5 "IEEE 802.16e",
        GERAN = 6 "3GPP GERAN",
        UTRAN = 7 "3GPP UTRAN",
        E_UTRAN = 8 "3GPP E-UTRAN",
        EHRPD = 9 "3GPP2 eHRPD",
        HRPD = 10 "3GPP2 HRPD",
        ONE_X_RTT = 11 "3GPP2 1xRTT",
        UMB = 12 "3GPP2 UMB",
    }
}

layout! {
    /// Home Network Prefix (RFC 5213, 8.3). An unspecified prefix of length 0 requests one.
    pub struct HomeNetworkPrefix {
        /// Flags (RFC 7864, 4.1).
        flags: HomeNetworkPrefixFlags,
        /// Prefix Length, at most 128.
        prefix_length: u8,
        /// The prefix.
        home_network_prefix: Ipv6Addr,
    }

    /// Handoff Indicator (RFC 5213, 8.4).
    pub struct HandoffIndicator {
        /// Reason of the update.
        [1] handoff_indicator: Handoff,
    }

    /// Access Technology Type (RFC 5213, 8.5).
    pub struct AccessTechnologyType {
        /// Technology of the link to the mobile node.
        [1] access_technology_type: AccessTechnology,
    }

    /// Mobile Node Link-layer Identifier (RFC 5213, 8.6).
    pub struct MobileNodeLinkLayerIdentifier {
        /// The identifier, formatted as a link-layer address in Neighbor Discovery.
        #[serde(serialize_with = "hex")]
        [2] link_layer_identifier: Vec<u8>,
    }

    /// Link-local Address (RFC 5213, 8.7), of the gateway's end of the link.
    pub struct LinkLocalAddress {
        /// The address; unspecified requests one.
        link_local_address: Ipv6Addr,
    }

    /// Restart Counter (RFC 5847, 4.2).
    pub struct RestartCounter {
        /// Incremented at each start of the sender.
        restart_counter: u32,
    }

    /// Mobile Node Group Identifier (RFC 6602, 4.1).
    pub struct MobileNodeGroupIdentifier {
        /// 1: a bulk binding update group.
        sub_type: u8,
        /// 1 means all sessions between the two peers.
        [1] mobile_node_group_identifier: u32,
    }

    /// Redirect-Capability (RFC 6463, 4.1).
    pub struct RedirectCapability {
        ; [2]
    }

    /// Load Information (RFC 6463, 4.3).
    pub struct LoadInformation {
        /// Priority.
        priority: u16,
        /// Sessions in Use.
        sessions_in_use: u32,
        /// Maximum Sessions.
        maximum_sessions: u32,
        /// Used Capacity in kbit/s.
        used_capacity_kbps: u32,
        /// Maximum Capacity in kbit/s.
        maximum_capacity_kbps: u32,
    }

    /// Alternate IPv4 Care-of Address (RFC 6463, 4.4).
    pub struct AlternateIpv4CareOfAddress {
        /// The address.
        alternate_ipv4_care_of_address: Ipv4Addr,
    }

    /// MAG IPv6 Address (RFC 6705, 11.1).
    pub struct MagIpv6Address {
        /// Address Length in bits, 128.
        [1] address_length: u8,
        /// Address of the gateway that takes part in local routing.
        mag_ipv6_address: Ipv6Addr,
    }

    /// MAG Multipath Binding (RFC 8278, 4.1).
    pub struct MagMultipathBinding {
        /// Interface Access-Technology Type.
        if_att: AccessTechnology,
        /// Interface Label.
        if_label: u8,
        /// Binding ID, 1 to 254.
        bid: u8,
        /// Flags.
        flags: MultipathFlags,
        ; [2]
    }
}

/// Timestamp (RFC 5213, 8.8): 48 bits of seconds since 1970 in UTC, and a 16-bit fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Timestamp {
    /// Whole seconds, below 2⁴⁸.
    pub seconds: u64,
    /// Fraction of a second in units of 1/65536 s.
    pub fraction_65536ths: u16,
}

impl Wire for Timestamp {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let bits = u64::read(reader)?;
        Ok(Timestamp { seconds: bits >> 16, fraction_65536ths: bits as u16 })
    }

    fn write(&self, out: &mut Vec<u8>) {
        (self.seconds << 16 | u64::from(self.fraction_65536ths)).write(out);
    }
}

/// Redirect (RFC 6463, 4.2): the anchor to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Redirect {
    /// IPv6 r2LMA address, with flag K.
    pub ipv6_r2lma_address: Option<Ipv6Addr>,
    /// IPv4 r2LMA address, with flag N.
    pub ipv4_r2lma_address: Option<Ipv4Addr>,
}

impl Redirect {
    const K: u16 = 0x8000;
    const N: u16 = 0x4000;
}

impl Wire for Redirect {
    fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = u16::read(reader)?;
        let ipv6 = (flags & Redirect::K != 0).then(|| Wire::read(reader)).transpose()?;
        let ipv4 = (flags & Redirect::N != 0).then(|| Wire::read(reader)).transpose()?;
        Ok(Redirect { ipv6_r2lma_address: ipv6, ipv4_r2lma_address: ipv4 })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let k = self.ipv6_r2lma_address.map_or(0, |_| Redirect::K);
        let n = self.ipv4_r2lma_address.map_or(0, |_| Redirect::N);
        (k | n).write(out);
        self.ipv6_r2lma_address.write(out);
        self.ipv4_r2lma_address.write(out);
    }
}
