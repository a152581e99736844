//! The messages between host and anchor on their signalling connection (QUIC, both ends
//! authenticated by certificates). Each message is a 16-bit length in network order and that many
//! bytes of postcard encoding.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};

use segue_ip::FlowKey;

use crate::WireError;

/// The version of these messages; a host with another one is refused.
pub const SIGNAL_VERSION: u16 = 6;
/// ALPN name of the signalling connection.
pub const ALPN: &[u8] = b"segue/1";
/// Longest message in bytes, without its length field.
pub const MAX_MESSAGE: usize = 4096;
/// Most flows that one message asks about.
pub const MAX_COUNTED: usize = 24;
/// Longest name of an interface or host in bytes.
pub const MAX_NAME: usize = 64;

/// From the mobile host to the anchor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHost {
    /// First message of a connection. `epoch` grows with every start of the host; of two processes that have a
    /// host's credentials the one that started last holds its registration, as long as it is connected. Connections
    /// of one epoch share one registration, so that signalling can be re-established while the paths live on.
    Register {
        /// [`SIGNAL_VERSION`].
        version: u16,
        /// Greater than in any earlier start of this host.
        epoch: u64,
    },
    /// Sets a path up, or changes the parameters of one that stands.
    AddPath(PathOffer),
    /// Takes a path down.
    RemovePath {
        /// Its number.
        path: u8,
    },
    /// The host leaves and asks to end its registration.
    Leave,
    /// Switches the keepalive of a path off or on again. While it is off no requests are sent, and
    /// neither end judges the path.
    Keepalive {
        /// Its number.
        path: u8,
        /// Whether requests are sent.
        on: bool,
    },
    /// Asks for a certificate for another key, after [`FromAnchor::Renew`].
    Renew {
        /// The request (PKCS #10, DER).
        request: Vec<u8>,
    },
    /// Several packets came on a path in one piece, which no device had cut, and cannot be taken: the anchor shall
    /// send one by one there.
    OneByOne {
        /// Its number.
        path: u8,
    },
    /// Asks what the anchor has counted of some of the host's flows ([`FromAnchor::FlowCounts`]).
    CountFlows {
        /// Repeated in the answer.
        round: u32,
        /// The flows as their packets leave the host, at most [`MAX_COUNTED`].
        flows: Vec<CountedFlow>,
    },
}

/// A flow whose packets are counted, as it leaves the host. Its source is an inner address of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedFlow {
    /// Inner source.
    pub src: IpAddr,
    /// Inner destination, of the same family.
    pub dst: IpAddr,
    /// Source port, or 0.
    pub sport: u16,
    /// Destination port, or 0.
    pub dport: u16,
    /// IP protocol.
    pub protocol: u8,
    /// IPv6 flow label where the ports are unknown, else 0.
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

/// What the anchor has counted of a flow since it was bound to its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSeen {
    /// The host's number of the path over which the anchor sends the flow; `None` if it knows no such flow.
    pub path: Option<u8>,
    /// Packets that the anchor has sent on that path, modulo 2³².
    pub sent: u32,
    /// Packets that have come over that path, modulo 2³².
    pub received: u32,
    /// Mean length of the packets sent, in bytes.
    pub length: u16,
}

/// One path as the host offers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOffer {
    /// The host's number for the path, below [`crate::MAX_PATHS`]: its bit in `heard`.
    pub path: u8,
    /// Name of the host's interface, for people.
    pub name: String,
    /// Tunnel index under which the host receives.
    pub index: u32,
    /// Cookie with which the host receives.
    pub cookie: u64,
    /// Unanswered probes before the client calls the path down.
    pub k: u8,
    /// Probe period in milliseconds.
    pub t_ka_ms: u16,
    /// Who measures.
    pub mode: Mode,
    /// Probes may ride on data, in both directions.
    pub rides: bool,
    /// Form of the path's packets.
    pub encapsulation: Encapsulation,
    /// Probes of a loss interval (N), at least 1.
    pub n: u16,
    /// Time constants of the averages that the anchor keeps of the path.
    pub taus: [Timescale; 2],
    /// Detection follows use: the host waits for the answer to a request that does not ride, and rides are answered
    /// soon.
    pub follows_use: bool,
    /// The largest inner packet that the path, and the host's device, take on the way down, in bytes, as far as the host
    /// knows; below 1280, in both directions.
    pub largest: u16,
    /// Its packets leave the host over IPv6. The anchor that gets them over the other protocol knows that they are
    /// translated on their way.
    pub v6: bool,
    /// The host has reasons to think that data need a UDP checksum in both directions.
    pub checksums: bool,
}

/// Time constants of an average in milliseconds; 0 follows each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timescale {
    /// For samples above the average.
    pub rise_ms: u32,
    /// For those below.
    pub fall_ms: u32,
}

impl Timescale {
    /// The same for both.
    #[must_use]
    pub const fn symmetric(ms: u32) -> Timescale {
        Timescale { rise_ms: ms, fall_ms: ms }
    }
}

/// Who measures a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Client and server, RTT and one-way loss (Salsano 2018, 4.1 and 4.2).
    #[default]
    Both,
    /// Only the client; the server answers and keeps no measurement and no timer (Patriarca 2012, 4).
    Client,
    /// The client, which reports its averages of RTT and round-trip loss in its requests; the server
    /// has a timer (Patriarca 2012, 4: networked robots).
    Reports,
    /// Client and server measure RTT; loss is that of the round trip, which the client evaluates and
    /// reports (Salsano 2018, appendix III).
    RoundTripLoss,
}

/// Form of a path's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encapsulation {
    /// The tunnel header of `docs/wire/tunnel-and-probe.md`.
    #[default]
    Segue,
    /// The packets of Salsano 2018, figure 13: the inner packet directly in UDP.
    Upmt,
}

/// From the anchor to the mobile host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAnchor {
    /// The registration stands.
    Registered {
        /// The host's inner addresses.
        inner: Vec<IpAddr>,
        /// The anchor's own inner addresses.
        anchor: Vec<IpAddr>,
        /// Where the anchor receives tunnel packets (port; the address is the one that answered).
        tunnel_port: u16,
    },
    /// The registration, or a message, is refused; the connection ends.
    Refused {
        /// Why.
        reason: Refusal,
    },
    /// A path is ready to be probed.
    PathReady(PathGrant),
    /// A path cannot be set up; the registration stands.
    PathRefused {
        /// The host's number for the path.
        path: u8,
        /// Why.
        reason: Refusal,
    },
    /// Two thirds of the lifetime of the host's certificate are over: it shall ask for another one.
    Renew,
    /// The certificate that the host has asked for.
    Renewed {
        /// DER.
        certificate: Vec<u8>,
    },
    /// [`FromHost::OneByOne`] in the other direction.
    OneByOne {
        /// The host's number for the path.
        path: u8,
    },
    /// Where packets can go on from the anchor. Comes before [`FromAnchor::Registered`], and again when it changes.
    WaysOut(WaysOut),
    /// A router has said that a packet on its way down was too big.
    TooBig {
        /// The host's number for the path.
        path: u8,
        /// The largest IP packet that the router takes, in bytes; `None` where it does not say.
        mtu: Option<u16>,
    },
    /// Answers [`FromHost::CountFlows`].
    FlowCounts {
        /// As asked.
        round: u32,
        /// In the order of the flows that were asked about.
        counts: Vec<FlowSeen>,
    },
    /// The largest inner packet that the anchor's device takes. Comes before [`FromAnchor::Registered`]; the host sends
    /// nothing larger, and its kernel asks its peers for nothing larger.
    Largest {
        /// In bytes.
        bytes: u16,
    },
}

/// What the anchor leads to: of each family, length of the prefix around its own inner address. 0, which is everything,
/// where it has a default route; else that of its pool, so that hosts reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaysOut {
    /// IPv4.
    pub v4: u8,
    /// IPv6.
    pub v6: u8,
}

/// One path as the anchor grants it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathGrant {
    /// The host's number for the path.
    pub path: u8,
    /// Tunnel index under which the anchor receives.
    pub index: u32,
    /// Cookie with which the anchor receives.
    pub cookie: u64,
    /// Key of the path's probes, both directions.
    pub key: [u8; 16],
    /// Which end measures: as offered, or [`Mode::Both`] if the anchor does not accept that.
    pub mode: Mode,
    /// Probes may ride on data.
    pub rides: bool,
    /// Form of the path's packets.
    pub encapsulation: Encapsulation,
    /// Data need a UDP checksum: the host thinks so, or the anchor sees that a translator is on the way.
    pub checksums: bool,
}

impl core::fmt::Debug for PathGrant {
    /// Never shows cookie or key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PathGrant {{ path: {}, index: {}, … }}", self.path, self.index)
    }
}

/// Why the anchor refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The host speaks another version of the messages.
    Version {
        /// The anchor's.
        speaks: u16,
    },
    /// The epoch is below that of a registration whose connection stands: another machine has the host's credentials.
    Held,
    /// No inner address is left.
    NoAddress,
    /// No tunnel index is left, or the path number is out of range.
    NoPath,
    /// The host is not enrolled, or no longer.
    NotEnrolled,
    /// A message that does not decode, or out of turn.
    Protocol,
    /// The host's certificate has expired.
    Expired,
    /// The epoch is below that of the last registration, whose connection has ended: the host's clock was set back,
    /// say. The host may register again, with an epoch beyond this one.
    Behind {
        /// That of the last registration.
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

/// A message with its length in front.
///
/// # Errors
/// [`WireError::Signal`] if it is longer than [`MAX_MESSAGE`].
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

/// Takes the first whole message off the front of `buffer`; `None` while it is not whole.
///
/// # Errors
/// [`WireError::Signal`] for a length over [`MAX_MESSAGE`], a message that does not decode, and
/// bytes left over within its length. The connection is useless after an error.
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
