//! What names and addresses can be, in test networks and scenarios.

use std::net::{IpAddr, Ipv4Addr};

use toml::Spanned;

use crate::source::{Mistake, Name};

/// Checks a name, which is a part of dotted keys, of columns, and of names that the kernel has.
///
/// # Errors
/// It is empty, or has a character that no name has.
pub fn check_name(name: &Name) -> Result<(), Mistake> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.get_ref().is_empty() || !name.get_ref().chars().all(fits) {
        let message = format!("{:?}: a name has letters, digits, - and _", name.get_ref());
        return Err(Mistake::of(name, message));
    }
    Ok(())
}

/// Checks the address of a node, which stands at this place.
///
/// # Errors
/// One that no node can have.
pub fn check_address<T>(address: IpAddr, place: &Spanned<T>) -> Result<(), Mistake> {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if broadcast || address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return Err(Mistake::of(place, format!("{address} is no address of a node")));
    }
    Ok(())
}
