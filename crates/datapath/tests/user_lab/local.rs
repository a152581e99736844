//! Addresses of the calling thread's namespace.

use std::net::IpAddr;

/// Whether packets to an address of this namespace are taken in. The kernel adds the route for that in its own time
/// after an IPv6 address; what comes before is lost.
pub(crate) fn is_local(address: IpAddr) -> bool {
    let IpAddr::V6(address) = address else { return true };
    let whole = format!("{:032x} 80 ", u128::from(address));
    let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap();
    routes.lines().any(|route| route.starts_with(&whole))
}
