//! The messages between host and anchor on their signalling connection (QUIC, both ends authenticated by certificates).
//! Each message consists of a 16-bit length in network byte order and that many bytes of postcard encoding.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};

use segue_ip::FlowKey;

use crate::WireError;

/// Version of these messages. Hosts with another version are refused.
pub const SIGNAL_VERSION: u16 = 6;
/// ALPN name of the signalling connection.
pub const ALPN: &[u8] = b"segue/1";
/// Longest message in bytes, without its length field.
pub const MAX_MESSAGE: usize = 4096;
/// Maximum number of flows in a request for counts.
pub const MAX_COUNTED: usize = 24;
/// Longest name of an interface or host, in bytes.
pub const MAX_NAME: usize = 64;

/// Messages from the mobile host to the anchor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHost {
    /// First message of a connection. `epoch` grows with every start of the host. If two processes have a host's
    /// credentials, the one that started last holds the registration while it is connected. Connections with the same
    /// epoch share one registration, so that signalling can be re-established without losing the paths.
    Register {
        /// [`SIGNAL_VERSION`].
        version: u16,
        /// Greater than in any earlier start of this host.
        epoch: u64,
    },
    /// Sets up a path, or changes the parameters of an existing one.
    AddPath(PathOffer),
    /// Removes a path.
    RemovePath {
        /// Number of the path.
        path: u8,
    },
    /// The host leaves, and asks the anchor to end its registration.
    Leave,
    /// Switches the keepalive of a path on or off. While it is off, no requests are sent and neither end judges the
    /// path.
    Keepalive {
        /// Number of the path.
        path: u8,
        /// True if requests are sent.
        on: bool,
    },
    /// Requests a certificate for another key, in response to [`FromAnchor::Renew`].
    Renew {
        /// The certificate request (PKCS #10, DER).
        request: Vec<u8>,
    },
    /// Unsegmented super-packets arrived on a path, which the host cannot accept: the anchor should send one by one
    /// there.
    OneByOne {
        /// Number of the path.
        path: u8,
    },
    /// Requests the anchor's counts for some of the host's flows ([`FromAnchor::FlowCounts`]).
    CountFlows {
        /// Repeated in the answer.
        round: u32,
        /// The flows as their packets leave the host, at most [`MAX_COUNTED`].
        flows: Vec<CountedFlow>,
    },
}

/// A flow whose packets are counted, as in packets from the host. Its source is an inner address of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedFlow {
    /// Inner source.
    pub src: IpAddr,
    /// Inner destination, of the same address family.
    pub dst: IpAddr,
    /// Source port, or 0 if unknown.
    pub sport: u16,
    /// Destination port, or 0 if unknown.
    pub dport: u16,
    /// IP protocol.
    pub protocol: u8,
    /// IPv6 flow label if the ports are unknown, else 0.
    pub label: u32,
}

impl From<&FlowKey> for CountedFlow {
    fn from(key: &FlowKey) -> CountedFlow {
        let FlowKey { src, dst, sport, dport, protocol, label } = *key;
        CountedFlow { src, dst, sport, dport, protocol, label }
    }
}

impl From<&CountedFlow> for FlowKey {
    fn from(flow: &CountedFlow) -> FlowKey {
        let CountedFlow { src, dst, sport, dport, protocol, label } = *flow;
        FlowKey { src, dst, sport, dport, protocol, label }
    }
}

/// The anchor's counts of a flow since it was bound to its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSeen {
    /// The host's number of the path on which the anchor sends the flow; `None` if the anchor does not know the flow.
    pub path: Option<u8>,
    /// Packets that the anchor sent on that path, modulo 2³².
    pub sent: u32,
    /// Packets that arrived on that path, modulo 2³².
    pub received: u32,
    /// Mean length of the packets sent, in bytes.
    pub length: u16,
}

/// A path as offered by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOffer {
    /// The host's number for the path, below [`crate::MAX_PATHS`]; also its bit in `heard`.
    pub path: u8,
    /// Name of the host's interface, for display.
    pub name: String,
    /// Tunnel index of packets to the host.
    pub index: u32,
    /// Cookie of packets to the host.
    pub cookie: u64,
    /// Number of unanswered probes after which the client declares the path down.
    pub k: u8,
    /// Probe period in milliseconds.
    pub t_ka_ms: u16,
    /// Which ends measure.
    pub mode: Mode,
    /// True if probes may ride on data, in both directions.
    pub rides: bool,
    /// Packet format.
    pub encapsulation: Encapsulation,
    /// Number of probes in a loss interval (N), at least 1.
    pub n: u16,
    /// Time constants of the anchor's averages.
    pub taus: [Timescale; 2],
    /// True if detection follows use: the host waits for the answer to a request that does not ride, and rides are
    /// answered soon.
    pub follows_use: bool,
    /// The largest inner packet that the path and the host's device are known to take on the downlink, in bytes; if
    /// below 1280, the largest for both directions.
    pub largest: u16,
    /// True if packets leave the host over IPv6. If they reach the anchor over the other protocol, they were translated
    /// on the way.
    pub v6: bool,
    /// True if the host considers a UDP checksum necessary for data in both directions.
    pub checksums: bool,
}

/// Time constants of an average in milliseconds; with 0 the average equals the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timescale {
    /// For samples above the average.
    pub rise_ms: u32,
    /// For samples below the average.
    pub fall_ms: u32,
}

impl Timescale {
    /// The same time constant for both.
    #[must_use]
    pub const fn symmetric(ms: u32) -> Timescale {
        Timescale { rise_ms: ms, fall_ms: ms }
    }
}

/// Which ends measure a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Client and server measure RTT and one-way loss (Salsano 2018, 4.1 and 4.2).
    #[default]
    Both,
    /// Only the client measures; the server answers, without measurements or timers (Patriarca 2012, 4).
    Client,
    /// The client measures and reports its averages of RTT and round-trip loss in its requests; the server has a timer
    /// (Patriarca 2012, 4: networked robots).
    Reports,
    /// Client and server measure RTT. Loss is that of the round trip, which the client evaluates and reports (Salsano
    /// 2018, appendix III).
    RoundTripLoss,
}

/// Packet format of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encapsulation {
    /// The tunnel header of `docs/wire/tunnel-and-probe.md`.
    #[default]
    Segue,
    /// The packets of Salsano 2018, figure 13: the inner packet directly in UDP.
    Upmt,
}

/// Messages from the anchor to the mobile host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAnchor {
    /// The host is registered.
    Registered {
        /// The host's inner addresses.
        inner: Vec<IpAddr>,
        /// The anchor's own inner addresses.
        anchor: Vec<IpAddr>,
        /// UDP port on which the anchor receives tunnel packets, at the address that answered.
        tunnel_port: u16,
    },
    /// The registration or a message was refused; the anchor closes the connection.
    Refused {
        /// The reason.
        reason: Refusal,
    },
    /// A path is ready for probes.
    PathReady(PathGrant),
    /// A path cannot be set up; the registration remains valid.
    PathRefused {
        /// The host's number for the path.
        path: u8,
        /// The reason.
        reason: Refusal,
    },
    /// Two thirds of the lifetime of the host's certificate have passed: the host should request a new one.
    Renew,
    /// The certificate that the host requested.
    Renewed {
        /// The certificate in DER.
        certificate: Vec<u8>,
    },
    /// [`FromHost::OneByOne`] in the other direction.
    OneByOne {
        /// The host's number for the path.
        path: u8,
    },
    /// The anchor's default routes. Sent before [`FromAnchor::Registered`] and after each change.
    WaysOut(WaysOut),
    /// A router reported that a downlink packet was too big.
    TooBig {
        /// The host's number for the path.
        path: u8,
        /// The largest IP packet that the router forwards, in bytes; `None` if not stated.
        mtu: Option<u16>,
    },
    /// Answers [`FromHost::CountFlows`].
    FlowCounts {
        /// Repeated from the request.
        round: u32,
        /// Counts in the order of the requested flows.
        counts: Vec<FlowSeen>,
    },
    /// The largest inner packet that the anchor's device takes. Sent before [`FromAnchor::Registered`]. The host sends
    /// nothing larger, and its kernel requests nothing larger from its peers.
    Largest {
        /// Size in bytes.
        bytes: u16,
    },
}

/// The destinations that the anchor can reach: for each family, the length of the prefix around its own inner address.
/// 0 (everything) with a default route; otherwise the length of its pool, so that hosts can reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaysOut {
    /// IPv4.
    pub v4: u8,
    /// IPv6.
    pub v6: u8,
}

/// A path as granted by the anchor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathGrant {
    /// The host's number for the path.
    pub path: u8,
    /// Tunnel index of packets to the anchor.
    pub index: u32,
    /// Cookie of packets to the anchor.
    pub cookie: u64,
    /// Key of the path's probes in both directions.
    pub key: [u8; 16],
    /// Which end measures: as offered, or [`Mode::Both`] if the anchor does not accept that.
    pub mode: Mode,
    /// True if probes may ride on data.
    pub rides: bool,
    /// Packet format.
    pub encapsulation: Encapsulation,
    /// True if data need a UDP checksum: the host considers it necessary, or the anchor has noticed a translator on the
    /// way.
    pub checksums: bool,
}

impl core::fmt::Debug for PathGrant {
    /// Never shows cookie or key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PathGrant {{ path: {}, index: {}, … }}", self.path, self.index)
    }
}

/// Why the anchor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The host speaks another version of the messages.
    Version {
        /// The anchor's version.
        speaks: u16,
    },
    /// The epoch is below that of a connected registration: another machine uses the host's credentials.
    Held,
    /// No inner address is left.
    NoAddress,
    /// No tunnel index is left, or the path number is out of range.
    NoPath,
    /// The host is not enrolled, or no longer enrolled.
    NotEnrolled,
    /// A message did not decode, or came out of turn.
    Protocol,
    /// The host's certificate has expired.
    Expired,
    /// The epoch is below that of the last registration, which is no longer connected: for example, the host's clock
    /// was set back. The host may register again with a greater epoch than this one.
    Behind {
        /// Epoch of the last registration.
        epoch: u64,
    },
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::Version { speaks } => {
                write!(f, "the anchor speaks version {speaks} of the signalling")
            }
            Refusal::Held => f.write_str(
                "another process is connected with the same credentials: a copy of this host's state or join line \
                 is in use",
            ),
            Refusal::NoAddress => f.write_str("the anchor has no inner address left"),
            Refusal::NoPath => f.write_str("the anchor has no room for this path"),
            Refusal::NotEnrolled => f.write_str("the host is not enrolled at the anchor"),
            Refusal::Protocol => f.write_str("the anchor did not understand a message"),
            Refusal::Expired => f.write_str("the host's certificate has expired"),
            Refusal::Behind { epoch } => {
                write!(f, "the host has registered with a later epoch before, {epoch}")
            }
        }
    }
}

/// Encodes a message with its length.
///
/// # Errors
/// [`WireError::Signal`] if the message is longer than [`MAX_MESSAGE`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, WireError> {
    let body = postcard::to_allocvec(message).map_err(|_| WireError::Signal)?;
    if body.len() > MAX_MESSAGE {
        return Err(WireError::Signal);
    }
    let mut bytes = Vec::with_capacity(body.len() + 2);
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    Ok(bytes)
}

/// Removes and decodes the first message of `buffer`; `None` if it is incomplete.
///
/// # Errors
/// [`WireError::Signal`] for a length over [`MAX_MESSAGE`], a message that does not decode, and extra bytes within its
/// length. The connection is unusable after an error.
pub fn decode<M: for<'a> Deserialize<'a>>(buffer: &mut Vec<u8>) -> Result<Option<M>, WireError> {
    let Some((len, rest)) = buffer.split_first_chunk::<2>() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes(*len));
    if len > MAX_MESSAGE {
        return Err(WireError::Signal);
    }
    let Some(body) = rest.get(..len) else { return Ok(None) };
    let (message, left) = postcard::take_from_bytes(body).map_err(|_| WireError::Signal)?;
    if !left.is_empty() {
        return Err(WireError::Signal);
    }
    buffer.drain(..len + 2);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn offer() -> FromHost {
        FromHost::AddPath(PathOffer {
            path: 3,
            name: "wlan0".into(),
            index: 70_000,
            cookie: u64::MAX,
            k: 5,
            t_ka_ms: 30,
            mode: Mode::Both,
            rides: false,
            encapsulation: Encapsulation::Segue,
            n: 10,
            taus: [1_000, 10_000].map(Timescale::symmetric),
            follows_use: false,
            largest: 1_456,
            v6: false,
            checksums: false,
        })
    }

    #[test]
    fn messages_round_trip_in_one_stream_cut_anywhere() {
        let mut stream = encode(&FromHost::Register { version: SIGNAL_VERSION, epoch: 9 }).unwrap();
        stream.extend(encode(&offer()).unwrap());
        for cut in 0..stream.len() {
            let mut buffer = stream[..cut].to_vec();
            let mut got = vec![];
            while let Some(m) = decode::<FromHost>(&mut buffer).unwrap() {
                got.push(m);
            }
            buffer.extend(&stream[cut..]);
            while let Some(m) = decode::<FromHost>(&mut buffer).unwrap() {
                got.push(m);
            }
            assert_eq!(
                got,
                [FromHost::Register { version: SIGNAL_VERSION, epoch: 9 }, offer()],
                "cut {cut}"
            );
        }
    }

    #[test]
    fn surplus_bytes_and_lengths_over_the_bound_are_refused() {
        let mut bytes = encode(&offer()).unwrap();
        bytes[1] += 1;
        bytes.push(0);
        assert_eq!(decode::<FromHost>(&mut bytes), Err(WireError::Signal));
        assert_eq!(decode::<FromHost>(&mut vec![0xff, 0xff]), Err(WireError::Signal));
    }

    #[test]
    fn a_grant_does_not_show_its_secrets() {
        let grant = PathGrant {
            path: 3,
            index: 17,
            cookie: 0xc0ff_eec0_ffee,
            key: [0xee; 16],
            mode: Mode::Both,
            rides: false,
            encapsulation: Encapsulation::Segue,
            checksums: false,
        };
        let shown = alloc::format!("{grant:?} {:?}", FromAnchor::PathReady(grant.clone()));
        assert!(shown.contains("17"), "{shown}");
        for secret in [grant.cookie.to_string(), "238".into(), "ee".into(), "c0ffee".to_string()] {
            assert!(!shown.contains(&secret), "{shown}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<FromHost>(&mut bytes.clone());
            let _ = decode::<FromAnchor>(&mut bytes.clone());
        }
    }
}
