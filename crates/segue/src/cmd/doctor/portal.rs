//! Captive portals: networks that answer every web request with a login page.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use segue_daemon::control::{Status, Tunnels};
use segue_daemon::packets::MARK;
use segue_linux::monitor::{Device, physical_candidates};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::finding::{Finding, todo};
use super::network::runtime;

/// How long a portal may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of bytes read from an answer.
const LONGEST: u64 = 4_096;

/// Finds accesses behind a captive portal. Sends a web request to port 80 of the anchor, where no anchor listens: a
/// redirection to another host comes from a device in between. Skips accesses with a path that is up.
pub(crate) fn portals(
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
                    let page = page(&name, to).await;
                    page.ok()?.map(|page| (name, page))
                })
            })
            .collect();
        for answer in answers {
            all.extend(answer.await?.map(|(name, page)| found(&name, &page)));
        }
        Ok(all)
    })
}

/// The finding has the command on a line of its own.
fn found(name: &str, page: &str) -> Finding {
    todo(
        "portal",
        format!(
            "{name}: the network wants a login first (captive portal); open its page:\n\
             sudo segue run --path {name} -- w3m {page}"
        ),
    )
}

/// The page to which a request is redirected; `None` if it is not.
async fn page(interface: &str, to: IpAddr) -> anyhow::Result<Option<String>> {
    let until = Instant::now() + PATIENCE;
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind_device(Some(interface.as_bytes()))?;
    // Bypasses the tunnel; only root may set it.
    let _ = setsockopt(&socket, sockopt::Mark, &MARK);
    let connecting = socket.connect(SocketAddr::new(to, 80));
    let mut stream: TcpStream = timeout_at(until, connecting).await??;
    let host = if to.is_ipv6() { format!("[{to}]") } else { to.to_string() };
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(target(&head(stream, until).await, &host))
}

/// The complete lines of an answer's head that arrive in time and fit.
async fn head(stream: impl AsyncRead + Unpin, until: Instant) -> String {
    let mut answer = Vec::new();
    let mut stream = stream.take(LONGEST);
    let reading = async {
        while !has_end(&answer) && matches!(stream.read_buf(&mut answer).await, Ok(1..)) {}
    };
    let _ = timeout_at(until, reading).await;
    let text = String::from_utf8_lossy(&answer);
    text.rfind('\n').map_or_else(String::new, |end| text[..=end].to_owned())
}

/// True if the empty line that ends a head has arrived.
fn has_end(answer: &[u8]) -> bool {
    let contains = |end: &[u8]| answer.windows(end.len()).any(|part| part == end);
    contains(b"\r\n\r\n") || contains(b"\n\n")
}

/// The target of an HTTP redirection. Status 511 (RFC 6585) asks for a login, whether or not it has an address.
fn target(answer: &str, host: &str) -> Option<String> {
    let mut lines = answer.lines();
    let status = lines.next()?.strip_prefix("HTTP/")?.split(' ').nth(1)?;
    let mut heads =
        lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let location = heads.find(|(name, _)| name.eq_ignore_ascii_case("location"));
    match (status, location) {
        ("301" | "302" | "303" | "307" | "308", Some((_, page))) => {
            let page = page.trim();
            // The host's own web server may redirect to HTTPS.
            let is_own = host_of(page).is_some_and(|other| is_same(other, host));
            plain(page, host).filter(|_| !is_own)
        }
        ("511", _) => Some(format!("http://{host}/")),
        _ => None,
    }
}

/// The host that a page names; `None` if the page is relative.
fn host_of(page: &str) -> Option<&str> {
    let (scheme, rest) = page.split_once("//")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority.rsplit('@').next()?;
    let end =
        if place.starts_with('[') { place.find(']').map(|end| end + 1) } else { place.find(':') };
    let is_absolute = scheme.is_empty() || scheme.ends_with(':');
    is_absolute.then(|| &place[..end.unwrap_or(place.len())])
}

/// True if both are the same address, as in a URL.
fn is_same(one: &str, other: &str) -> bool {
    let address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    address(one).is_some_and(|one| address(other) == Some(one))
}

/// True if a page begins with a scheme (RFC 3986, section 3.1).
fn has_scheme(page: &str) -> bool {
    let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    page.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(in_scheme))
}

/// The address of a page, safe to paste into a shell. `None` if a browser would not open it.
fn plain(page: &str, host: &str) -> Option<String> {
    let begins =
        |with: &str| page.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    let page = if begins("http://") || begins("https://") {
        page.to_owned()
    } else if begins("//") {
        format!("http:{page}")
    } else if has_scheme(page) {
        return None;
    } else if begins("/") {
        format!("http://{host}{page}")
    } else {
        // A page beside the one that was asked for.
        format!("http://{host}/")
    };
    let quiet = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!,=%+".contains(c);
    // The response is untrusted: quote what a shell would interpret, and reject anything else.
    let safe = page.len() <= 500 && page.chars().all(|c| quiet(c) || c == '&');
    match (safe, page.contains(['&', '?', '#', '!', '['])) {
        (false, _) => Some(format!("http://{host}/")),
        (true, false) => Some(page),
        (true, true) => Some(format!("'{page}'")),
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
        assert_eq!(moved(302, "//login.test/x").as_deref(), Some("http://login.test/x"));
        assert_eq!(moved(302, "HTTPS://login.test/").as_deref(), Some("HTTPS://login.test/"));
        for beside in ["login.html", "?a=1", ""] {
            assert_eq!(moved(302, beside).as_deref(), Some("http://192.0.2.1/"), "{beside}");
        }
        assert_eq!(page("HTTP/1.1 511 x\r\n\r\n").as_deref(), Some("http://192.0.2.1/"));
        assert_eq!(page("HTTP/1.1 200 OK\r\nLocation: http://a/\r\n\r\n"), None);
        assert_eq!(page("SSH-2.0-x\r\n"), None);
        assert_eq!(page(""), None);
    }

    #[test]
    fn a_redirection_to_the_host_that_was_asked_is_no_portal() {
        let moved = |to: &str, host: &str| {
            target(&format!("HTTP/1.1 301 Moved\r\nLocation: {to}\r\n\r\n"), host)
        };
        for own in ["https://192.0.2.1/", "HTTPS://192.0.2.1:443", "//192.0.2.1/a"] {
            assert_eq!(moved(own, "192.0.2.1"), None, "{own}");
        }
        assert_eq!(moved("https://[2001:db8:0::1]/", "[2001:db8::1]"), None);
        for other in ["https://192.0.2.10/", "http://192.0.2.1@login.test/"] {
            assert_eq!(moved(other, "192.0.2.1").as_deref(), Some(other));
        }
    }

    #[test]
    fn an_answer_ends_with_its_head_or_counts_as_far_as_it_came() {
        const HEAD: &str = "HTTP/1.1 302 Found\r\nLocation: http://login.test/\r\n";
        let long = format!("{HEAD}Set-Cookie: {}\r\n\r\n", "x".repeat(5_000));
        let cut = "HTTP/1.1 302 Found\r\nLocation: http://log".to_owned();
        runtime().unwrap().block_on(async {
            // The connections stay open.
            for (answer, patience, page) in [
                (format!("{HEAD}\r\n"), Duration::from_secs(60), Some("http://login.test/")),
                (HEAD.to_owned(), Duration::from_millis(100), Some("http://login.test/")),
                (long, Duration::from_secs(60), Some("http://login.test/")),
                (cut, Duration::from_millis(100), None),
            ] {
                let (near, mut far) = tokio::io::duplex(8_192);
                far.write_all(answer.as_bytes()).await.unwrap();
                let began = Instant::now();
                let head = head(near, began + patience).await;
                assert_eq!(target(&head, "192.0.2.1").as_deref(), page, "{head}");
                assert!(began.elapsed() < Duration::from_secs(30), "waits for no more");
                drop(far);
            }
        });
    }

    #[test]
    fn the_command_is_a_line_of_its_own() {
        let text = found("wifi", "http://login.test/").text;
        let last = text.lines().next_back();
        assert_eq!(last, Some("sudo segue run --path wifi -- w3m http://login.test/"));
    }
}
