//! Addresses in the calling thread's namespace.

use std::net::IpAddr;

/// True if packets to an address in this namespace are accepted. The kernel adds the route for an IPv6 address some
/// time after the address itself; packets that arrive earlier are lost.
pub(crate) fn is_local(address: IpAddr) -> bool {
    let IpAddr::V6(address) = address else { return true };
    let whole = format!("{:032x} 80 ", u128::from(address));
    let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap();
    routes.lines().any(|route| route.starts_with(&whole))
}
