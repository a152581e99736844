//! Keys of the transport between gateways and anchors: addresses and encapsulation.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::bail;
use schemars::JsonSchema;
use segue_pmip::{Allowed, Encapsulation, GreUse};
use serde::{Deserialize, Serialize};

/// Use of GRE tunnels by an anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum GreKey {
    /// Never.
    Off,
    /// If a gateway asks for it.
    #[default]
    Allowed,
    /// A gateway that does not ask for it is refused.
    Required,
}

/// The encapsulation of hosts' packets between gateway and anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum EncapsulationKey {
    /// An IP header.
    #[default]
    Ip,
    /// [GRE with keys](pmip.md#gre-with-keys).
    Gre,
    /// UDP, over IPv4 and if the anchor has `accept_udp`; behind a NAT always UDP.
    Udp,
}

impl GreKey {
    pub(super) fn gre(self) -> GreUse {
        match self {
            GreKey::Off => GreUse::Off,
            GreKey::Allowed => GreUse::Allowed,
            GreKey::Required => GreUse::Required,
        }
    }
}

/// Checks an anchor's own addresses.
pub(super) fn own_addresses(address: IpAddr, v4: Option<Ipv4Addr>) -> anyhow::Result<()> {
    unicast("address", address)?;
    let Some(v4) = v4 else { return Ok(()) };
    if address.is_ipv4() {
        bail!("address_v4 is for an anchor whose address is of IPv6");
    }
    unicast("address_v4", v4.into())
}

/// Checks that an anchor has an address for each of the gateways.
pub(super) fn has_family(
    gateways: &[Allowed],
    address: IpAddr,
    v4: Option<Ipv4Addr>,
) -> anyhow::Result<()> {
    let has = |gateway: &Allowed| match gateway.prefix.addr {
        IpAddr::V4(_) => address.is_ipv4() || v4.is_some(),
        IpAddr::V6(_) => address.is_ipv6(),
    };
    match gateways.iter().find(|gateway| !has(gateway)) {
        Some(Allowed { prefix, .. }) if prefix.addr.is_ipv4() => {
            bail!("gateways: {prefix} is of IPv4: set address_v4")
        }
        Some(Allowed { prefix, .. }) => {
            bail!("gateways: {prefix} is of IPv6, address is not: set both address and address_v4")
        }
        None => Ok(()),
    }
}

pub(super) fn encapsulation(
    key: EncapsulationKey,
    anchor: IpAddr,
) -> anyhow::Result<Encapsulation> {
    match key {
        EncapsulationKey::Ip => Ok(Encapsulation::Ip),
        EncapsulationKey::Gre => Ok(Encapsulation::Gre),
        EncapsulationKey::Udp if anchor.is_ipv4() => Ok(Encapsulation::Udp),
        EncapsulationKey::Udp => {
            bail!("encapsulation: udp is for an anchor that is reached over IPv4 (RFC 5844)")
        }
    }
}

/// Checks that both ends of a tunnel have the same address family.
pub(super) fn same_family(key: &str, address: IpAddr, anchor: IpAddr) -> anyhow::Result<()> {
    if address.is_ipv4() != anchor.is_ipv4() {
        bail!("{key}: {address} and the anchor, {anchor}, must both be of IPv4, or both of IPv6");
    }
    Ok(())
}

pub(super) fn unicast(key: &str, address: IpAddr) -> anyhow::Result<()> {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let bad =
        address.is_unspecified() || address.is_multicast() || address.is_loopback() || link_local;
    if bad {
        bail!("{key}: {address} is no address that other machines reach");
    }
    Ok(())
}
