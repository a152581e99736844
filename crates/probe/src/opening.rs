//! The opening line: the measurement, and its target.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use segue_clock::Span;
use serde::Serialize;

use super::addresses::shown;
use super::screen::{Output, print, print_json};

/// The measurement of a target that is about to start.
pub(crate) struct Opening<'a> {
    /// The target as the user wrote it.
    pub name: &'a str,
    /// Its address.
    pub address: SocketAddr,
    /// The requested interface.
    pub interface: Option<&'a str>,
    /// `segue` or `stamp`.
    pub protocol: &'static str,
    /// Bytes of UDP payload in a request.
    pub size: usize,
    /// Time between requests.
    pub interval: Span,
    /// Number of requests.
    pub count: Option<u32>,
    /// How long to send requests.
    pub deadline: Option<Span>,
    /// Requests are authenticated with the operator's key.
    pub keyed: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    target: &'a str,
    address: String,
    interface: Option<String>,
    from: Option<String>,
    protocol: &'static str,
    size: usize,
    interval_ms: f64,
    count: Option<u32>,
    deadline_s: Option<f64>,
    authenticated: bool,
}

impl Opening<'_> {
    /// Prints the line.
    ///
    /// # Errors
    /// The output is closed.
    pub(crate) fn tell(&self, output: Output) -> io::Result<()> {
        let (interface, from) = way(self.address, self.interface);
        match output {
            Output { json: true, .. } => print_json(&Line {
                r#type: "start",
                target: self.name,
                address: shown(self.address),
                interface,
                from: from.map(|from| from.to_string()),
                protocol: self.protocol,
                size: self.size,
                interval_ms: self.interval.as_millis_f64(),
                count: self.count,
                deadline_s: self.deadline.map(Span::as_secs_f64),
                authenticated: self.keyed,
            }),
            Output { quiet: true, .. } => Ok(()),
            _ => print(&self.text(interface.as_deref(), from)),
        }
    }

    fn text(&self, interface: Option<&str>, from: Option<IpAddr>) -> String {
        let address = shown(self.address);
        let mut text = format!("probing {}", self.name);
        if self.name != address {
            text += &format!(" ({address})");
        }
        text += &interface.map_or(String::new(), |name| format!(" over {name}"));
        text += &from.map_or(String::new(), |from| format!(" from {from}"));
        let protocol = if self.protocol == "stamp" { "STAMP" } else { "compact probe" };
        let keyed = if self.keyed { ", authenticated" } else { "" };
        let every = self.interval.as_millis_f64();
        text += &format!(": {protocol}{keyed}, {} bytes every {every} ms, ", self.size);
        text + &match (self.count, self.deadline) {
            (Some(count), None) => format!("{count} times"),
            (Some(count), Some(time)) => {
                format!("{count} times, for {} s at most", time.as_secs_f64())
            }
            (None, Some(time)) => format!("for {} s", time.as_secs_f64()),
            (None, None) => "until Ctrl-C".into(),
        }
    }
}

/// This machine's interface and address for packets to `to`, as far as the kernel reports them.
fn way(to: SocketAddr, interface: Option<&str>) -> (Option<String>, Option<IpAddr>) {
    if let Some(name) = interface {
        return (Some(name.to_owned()), None);
    }
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let from = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip().to_canonical())
    });
    let Ok(from) = from else { return (None, None) };
    let has_it = |there: &nix::ifaddrs::InterfaceAddress| {
        let address = there.address.as_ref();
        let v4 = address.and_then(|a| Some(IpAddr::from(a.as_sockaddr_in()?.ip())));
        let v6 = address.and_then(|a| Some(IpAddr::from(a.as_sockaddr_in6()?.ip())));
        v4.or(v6) == Some(from)
    };
    let name = getifaddrs().ok().and_then(|mut all| all.find(has_it)).map(|it| it.interface_name);
    (name, Some(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_says_what_is_done_to_whom() {
        let to = ([127, 0, 0, 1], 5005).into();
        let opening = Opening {
            name: "anchor.example",
            address: to,
            interface: None,
            protocol: "segue",
            size: 56,
            interval: Span::from_millis(200),
            count: Some(10),
            deadline: None,
            keyed: false,
        };
        assert_eq!(
            opening.text(Some("wifi"), None),
            "probing anchor.example (127.0.0.1:5005) over wifi: compact probe, 56 bytes every 200 ms, 10 times"
        );
        let stamp = Opening {
            name: "127.0.0.1:5005",
            protocol: "stamp",
            keyed: true,
            count: None,
            ..opening
        };
        assert_eq!(
            stamp.text(Some("lo"), Some(to.ip())),
            "probing 127.0.0.1:5005 over lo from 127.0.0.1: STAMP, authenticated, 56 bytes every 200 ms, until Ctrl-C"
        );
        assert_eq!(way(to, None), (Some("lo".into()), Some(to.ip())));
        assert_eq!(way(to, Some("wifi")), (Some("wifi".into()), None));
    }
}
