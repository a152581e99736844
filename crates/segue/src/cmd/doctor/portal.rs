//! Captive portals: networks that answer every web request with a login page.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use segue_daemon::control::{Status, Tunnels};
use segue_daemon::packets::MARK;
use segue_linux::monitor::{Device, physical_candidates};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::finding::{Finding, todo};
use super::network::runtime;

/// How long a portal may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of bytes read from an answer.
const LONGEST: u64 = 4_096;

/// Finds accesses behind a captive portal. Sends a web request to port 80 of the anchor, where no anchor listens: a
/// redirection must come from a device in between. Skips accesses with a path that is up.
pub(super) fn portals(
    interfaces: &[Device],
    anchor: &[SocketAddr],
    running: Option<&Status<Tunnels>>,
) -> anyhow::Result<Vec<Finding>> {
    let works = |name: &str| {
        let paths = running.map_or(&[][..], |status| &status.body.paths);
        paths.iter().any(|path| path.name == name && path.state == "up")
    };
    let mut asked = Vec::new();
    for to in anchor.iter().map(SocketAddr::ip) {
        for device in physical_candidates(interfaces, to) {
            let name = device.interface.name;
            if !works(&name) && !asked.iter().any(|(other, _): &(String, IpAddr)| *other == name) {
                asked.push((name, to));
            }
        }
    }
    runtime()?.block_on(async {
        let mut all = Vec::new();
        let answers: Vec<_> = asked
            .into_iter()
            .map(|(name, to)| {
                tokio::spawn(async move {
                    let page = timeout(PATIENCE, page(&name, to)).await;
                    page.ok()?.ok()?.map(|page| (name, page))
                })
            })
            .collect();
        for answer in answers {
            all.extend(answer.await?.map(|(name, page)| found(&name, &page)));
        }
        Ok(all)
    })
}

fn found(name: &str, page: &str) -> Finding {
    todo(
        "portal",
        format!(
            "{name}: the network wants a login first (captive portal); open its page: sudo segue run --path {name} -- xdg-open {page}"
        ),
    )
}

/// The page to which a request is redirected; `None` if it is not.
async fn page(interface: &str, to: IpAddr) -> anyhow::Result<Option<String>> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind_device(Some(interface.as_bytes()))?;
    // Bypasses the tunnel; only root may set it.
    let _ = setsockopt(&socket, sockopt::Mark, &MARK);
    let mut stream: TcpStream = socket.connect(SocketAddr::new(to, 80)).await?;
    let host = if to.is_ipv6() { format!("[{to}]") } else { to.to_string() };
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    Ok(target(&String::from_utf8_lossy(&answer), &host))
}

/// The target of an HTTP redirection. Status 511 (RFC 6585) asks for a login, whether or not it has an address.
fn target(answer: &str, host: &str) -> Option<String> {
    let mut lines = answer.lines();
    let status = lines.next()?.strip_prefix("HTTP/")?.split(' ').nth(1)?;
    let mut heads =
        lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let location = heads.find(|(name, _)| name.eq_ignore_ascii_case("location"));
    match (status, location) {
        ("301" | "302" | "303" | "307" | "308", Some((_, page))) => plain(page.trim(), host),
        ("511", _) => Some(format!("http://{host}/")),
        _ => None,
    }
}

/// The address of a page, safe to paste into a shell.
fn plain(page: &str, host: &str) -> Option<String> {
    let page = match page.starts_with('/') {
        true => format!("http://{host}{page}"),
        false => page.to_owned(),
    };
    let web = page.starts_with("http://") || page.starts_with("https://");
    let quiet = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!,=%+".contains(c);
    // The response is untrusted: quote what a shell would interpret, and reject anything else.
    let safe = page.chars().all(|c| quiet(c) || c == '&');
    match (web && page.len() <= 500, page.contains(['&', '?', '#', '!', '[']), safe) {
        (true, false, true) => Some(page),
        (true, true, true) => Some(format!("'{page}'")),
        (true, _, false) => Some(format!("http://{host}/")),
        (false, ..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_send_a_browser_elsewhere_are_portals() {
        let page = |answer: &str| target(answer, "192.0.2.1");
        let moved = |code: u16, to: &str| {
            page(&format!("HTTP/1.1 {code} Found\r\nServer: x\r\nLocation: {to}\r\n\r\n"))
        };
        assert_eq!(moved(302, "http://login.example/a").as_deref(), Some("http://login.example/a"));
        assert_eq!(
            moved(307, "https://login.example/?a=1&b=2").as_deref(),
            Some("'https://login.example/?a=1&b=2'")
        );
        assert_eq!(moved(303, "/login").as_deref(), Some("http://192.0.2.1/login"));
        assert_eq!(moved(302, "http://a/;reboot").as_deref(), Some("http://192.0.2.1/"));
        assert_eq!(moved(302, "http://a/'$(reboot)'").as_deref(), Some("http://192.0.2.1/"));
        assert_eq!(moved(302, "file:///etc/passwd"), None);
        assert_eq!(page("HTTP/1.1 511 x\r\n\r\n").as_deref(), Some("http://192.0.2.1/"));
        assert_eq!(page("HTTP/1.1 200 OK\r\nLocation: http://a/\r\n\r\n"), None);
        assert_eq!(page("SSH-2.0-x\r\n"), None);
        assert_eq!(page(""), None);
    }
}
