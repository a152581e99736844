//! Addresses in the form that people write, and sockets bound to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, anyhow};
use nix::net::if_::if_nametoindex;
use segue_linux::udp::{TimestampedSocket, UdpError};

/// IPv4 only, or IPv6 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The address of `HOST[:PORT]`. An IPv6 address with a port needs brackets.
///
/// # Errors
/// One line that names the host.
pub(crate) fn resolve(
    text: &str,
    default_port: u16,
    family: Option<Family>,
    interface: Option<&str>,
) -> anyhow::Result<SocketAddr> {
    let (host, port) = split(text, default_port)?;
    let wanted = |address: &SocketAddr| match family {
        Some(Family::V4) => address.is_ipv4(),
        Some(Family::V6) => address.is_ipv6(),
        None => true,
    };
    let mut found = (host, port).to_socket_addrs().map_err(|error| {
        // The resolver's message, without the prefix that the standard library adds.
        let text = error.to_string();
        let reason = text.strip_prefix("failed to lookup address information: ");
        anyhow!("cannot resolve {host}: {}", reason.unwrap_or(&text))
    })?;
    let mut address = found.find(wanted).with_context(|| match family {
        Some(Family::V4) => format!("{host} has no IPv4 address"),
        _ => format!("{host} has no IPv6 address"),
    })?;
    if let (SocketAddr::V6(v6), Some(name)) = (&mut address, interface)
        && v6.ip().is_unicast_link_local()
        && v6.scope_id() == 0
    {
        let index = if_nametoindex(name).with_context(|| format!("there is no interface {name}"));
        v6.set_scope_id(index?);
    }
    Ok(address)
}

/// The address of a listener: `ADDR`, `ADDR:PORT`, or `:PORT` for all addresses.
///
/// # Errors
/// One line that shows the expected form.
pub(crate) fn listen_address(text: &str, default_port: u16) -> anyhow::Result<SocketAddr> {
    let (host, port) = split(text, default_port)?;
    let host = if host.is_empty() { "::" } else { host };
    let (host, scope) = match host.split_once('%') {
        Some((host, scope)) => (host, Some(scope)),
        None => (host, None),
    };
    let ip: IpAddr = host.parse().map_err(|_| {
        anyhow!("{text} is no address to listen on; examples: [::]:5005, 192.0.2.1, fe80::1%eth0")
    })?;
    let mut address = SocketAddr::new(ip, port);
    match (&mut address, scope) {
        (_, None) => {}
        (SocketAddr::V6(v6), Some(scope)) => v6.set_scope_id(match scope.parse() {
            Ok(index) => index,
            Err(_) => if_nametoindex(scope)
                .with_context(|| format!("{text}: there is no interface {scope}"))?,
        }),
        (SocketAddr::V4(_), Some(_)) => {
            return Err(anyhow!("{text}: only an IPv6 address has a scope"));
        }
    }
    Ok(address)
}

fn split(text: &str, default_port: u16) -> anyhow::Result<(&str, u16)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) =
            rest.split_once(']').with_context(|| format!("{text}: the bracket does not close"))?;
        (host, rest.strip_prefix(':').or((rest.is_empty()).then_some("")))
    } else {
        match text.split_once(':') {
            // A second colon: an IPv6 address without brackets, which cannot have a port.
            Some((_, rest)) if rest.contains(':') => (text, Some("")),
            Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
            None => (text, Some("")),
        }
    };
    let port = match port {
        Some("") => Some(default_port),
        Some(digits) => digits.parse().ok(),
        None => None,
    };
    Ok((host, port.with_context(|| format!("{text}: the port must be a number up to 65535"))?))
}

/// Binds a socket. If the kernel has no IPv6, "all addresses" means all IPv4 addresses.
pub(crate) fn bind(
    address: SocketAddr,
    interface: Option<&str>,
) -> Result<TimestampedSocket, UdpError> {
    match TimestampedSocket::bind(address, interface) {
        Err(UdpError::Io { source, .. })
            if address.ip().is_unspecified()
                && source.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
        {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            TimestampedSocket::bind(any, interface)
        }
        result => result,
    }
}

/// An address in the form that people write: an IPv4-mapped one as IPv4.
pub(crate) fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_wire::TUNNEL_PORT;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        for (text, host, port) in [
            ("anchor.example", "anchor.example", 5005),
            ("anchor.example:7", "anchor.example", 7),
            ("192.0.2.1:65535", "192.0.2.1", 65535),
            ("2001:db8::1", "2001:db8::1", 5005),
            ("::1", "::1", 5005),
            ("[2001:db8::1]", "2001:db8::1", 5005),
            ("[2001:db8::1]:7", "2001:db8::1", 7),
        ] {
            assert_eq!(split(text, TUNNEL_PORT).unwrap(), (host, port), "{text}");
        }
        for text in ["[::1", "host:", "host:x", "host:65536", "[::1]x", "[::1]:-1"] {
            assert!(split(text, TUNNEL_PORT).is_err(), "{text}");
        }
    }

    #[test]
    fn a_listener_may_leave_out_the_address_or_the_port() {
        assert_eq!(listen_address(":7", 5005).unwrap(), "[::]:7".parse().unwrap());
        assert_eq!(listen_address("192.0.2.1", 5005).unwrap(), "192.0.2.1:5005".parse().unwrap());
        assert!(listen_address("anchor.example:7", 5005).is_err());
    }

    #[test]
    fn a_listener_takes_the_scope_of_a_link_local_address() {
        for (text, port) in [("[fe80::1%1]:7", 7), ("fe80::1%lo", 5005)] {
            let SocketAddr::V6(found) = listen_address(text, 5005).unwrap() else { panic!() };
            assert_eq!((found.scope_id(), found.port()), (1, port), "{text}");
        }
        let said = |text| listen_address(text, 5005).unwrap_err().to_string();
        assert!(said("fe80::1%nosuch0").contains("there is no interface nosuch0"));
        assert!(said("192.0.2.1%lo").contains("only an IPv6 address"));
    }

    #[test]
    fn a_host_of_the_other_family_is_refused_by_name() {
        let error = resolve("127.0.0.1", 5005, Some(Family::V6), None).unwrap_err();
        assert_eq!(error.to_string(), "127.0.0.1 has no IPv6 address");
    }
}
