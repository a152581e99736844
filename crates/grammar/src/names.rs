//! Valid names and addresses in test networks and scenarios.

use std::net::{IpAddr, Ipv4Addr};

use crate::placed::{Name, Spanned};
use crate::source::Mistake;

/// Checks a name. Names become parts of dotted keys, of column names, and of kernel names.
///
/// # Errors
/// The name is empty, or has a character other than letters, digits, `-` and `_`.
pub fn check_name(name: &Name) -> Result<(), Mistake> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.get_ref().is_empty() || !name.get_ref().chars().all(fits) {
        let message = format!("{:?}: a name has letters, digits, - and _", name.get_ref());
        return Err(Mistake::of(name, message));
    }
    Ok(())
}

/// Checks the address of a node; `place` is where the file states it.
///
/// # Errors
/// No node can have this address.
pub fn check_address<T>(address: IpAddr, place: &Spanned<T>) -> Result<(), Mistake> {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if broadcast || address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return Err(Mistake::of(place, format!("{address} is no address of a node")));
    }
    Ok(())
}
