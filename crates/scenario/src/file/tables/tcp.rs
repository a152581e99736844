//! `[[tcp]]`, `[[ftp]]`, `[[web]]`: applications over TCP, and the keys of a connection.

use schemars::JsonSchema;
use segue_clock::Span;
use segue_grammar::{Duration, Mistake, Spanned, Within, from_text, hint};
use segue_traffic::apps::{Dist, FtpConfig, WebConfig};
use segue_traffic::tcp::{Config, Endpoint, GREEDY, Sink, SinkAgent, Source, SourceAgent, Variant};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::apps::{App, Placed, TCP as PROTOCOL};
use crate::file::builder::Builder;
use crate::file::table::{Kind, Table};

pub(super) const TCP: Kind = Kind::of::<App<Connection, Tcp>>("tcp", &[]);
pub(super) const FTP: Kind = Kind::of::<App<Connection, Ftp>>("ftp", &[]);
pub(super) const WEB: Kind = Kind::of::<App<Connection, Web>>("web", &[]);

/// The keys of a connection.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Connection {
    /// Congestion control, as in `segue sim dumbbell`
    #[serde(default)]
    variant: VariantName,
    /// Defaults of the keys below
    #[serde(default)]
    profile: Profile,
    /// Bytes of a full data packet with its headers
    #[schemars(extend("x-unset" = "1480"))]
    packet: Option<Spanned<Within<0, 1, 65_535>>>,
    /// Maximum window in packets
    #[schemars(extend("x-unset" = "20"))]
    window: Option<Packets>,
    /// First window in packets
    initial_window: Option<Packets>,
    /// First threshold in packets
    initial_ssthresh: Option<Packets>,
    /// Shortest retransmission timeout
    min_rto: Option<Duration>,
    /// Granularity of the clock
    tick: Option<Duration<0, 1>>,
    /// Maximum delay of an acknowledgement that waits for a second segment, or `false`
    delayed_ack: Option<DelayedAck>,
    /// Number of duplicates that indicate a loss
    dupack_threshold: Option<Within<0, 1, 1_000>>,
    /// Bytes of a pure acknowledgement
    ack_size: Option<Within<0, 1, 65_535>>,
}

/// A number of packets.
type Packets = Within<0, 1, 1_048_576>;

/// A stream of bytes over TCP.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Tcp {
    /// Bytes from `from` to `to`, from the start of the run
    #[schemars(extend("x-unset" = "without end"))]
    bytes: Option<u64>,
}

/// Files sent to the requesting end.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Ftp {
    /// Size of a file
    #[schemars(extend("x-unset" = "endless"))]
    file_bytes: Option<u64>,
    /// Number of files
    #[schemars(extend("x-unset" = "as many as time permits"))]
    files: Option<u64>,
    /// Time from the end of a file to the start of the next
    #[serde(default)]
    pause: Duration,
    /// `from` sends; otherwise it receives
    #[serde(default)]
    upload: bool,
}

/// Pages that are read one after another.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Web {
    /// Source of sizes and times
    #[serde(default)]
    model: WebModel,
    /// Number of pages
    #[schemars(extend("x-unset" = "as many as time permits"))]
    pages: Option<u64>,
    /// Number of parallel connections
    #[schemars(extend("x-unset" = "4"))]
    connections: Option<Within<0, 1, 1_000>>,
    /// Bytes of a request
    #[schemars(extend("x-unset" = "350"))]
    request_bytes: Option<u32>,
    /// Mean time to read a page
    #[schemars(extend("x-unset" = "the model's"))]
    reading: Option<Duration>,
}

/// Source of sizes and times of pages.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-plain" = true))]
enum WebModel {
    /// 3GPP2's C.R1002.
    #[default]
    #[serde(rename = "3gpp2")]
    Gpp2,
    /// ns-2's example of PagePool/WebTraf.
    #[serde(rename = "ns-2")]
    Ns2,
}

impl Table for App<Connection, Tcp> {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let common = &self.common;
        let placed = common.place(builder, PROTOCOL, (1, 1), 0)?;
        if self.own.bytes.is_none() {
            common.note_standstill(builder, &placed, PROTOCOL);
        }
        let Placed { nodes, ends } = placed;
        if let Some(start) = common.start.as_ref().or(common.stop.as_ref()) {
            return Err(Mistake::of(start, "a stream of [[tcp]] begins with the run: see [[ftp]]"));
        }
        let config = self.over.config(ends.first.0.is_ipv6())?;
        let endpoint = Endpoint { local: ends.first, remote: ends.second };
        let source = Source::new(config, endpoint);
        let sink = Sink::new(config, endpoint.reversed());
        let bytes = self.own.bytes.unwrap_or(GREEDY);
        let (name, network) = (common.name.get_ref(), &mut builder.network);
        let source = Box::new(SourceAgent::new(source, bytes));
        network.add_agent(nodes.0, name, &[(PROTOCOL, ends.first.1)], source);
        network.add_agent(
            nodes.1,
            name,
            &[(PROTOCOL, ends.second.1)],
            Box::new(SinkAgent { sink }),
        );
        Ok(())
    }
}

impl Table for App<Connection, Ftp> {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let App { common, over, own } = self;
        let placed = common.place(builder, PROTOCOL, (1, 1), 0)?;
        if own.file_bytes.is_none() || own.files.is_none() && own.pause.0 == Span::ZERO {
            common.note_standstill(builder, &placed, PROTOCOL);
        }
        let config = FtpConfig {
            file_bytes: own.file_bytes,
            files: own.files,
            pause: own.pause.0,
            upload: own.upload,
            period: common.period(builder)?,
            tcp: over.config(placed.ends.first.0.is_ipv6())?,
        };
        common.add(builder, &placed, config.pair(&placed.ends))
    }
}

impl Table for App<Connection, Web> {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let App { common, over, own } = self;
        let default = match own.model {
            WebModel::Gpp2 => WebConfig::default(),
            WebModel::Ns2 => WebConfig::ns2(),
        };
        let connections = own.connections.map_or(default.connections, Within::get);
        let placed = common.place(builder, PROTOCOL, (connections, 1), 0)?;
        let reading = own.reading.map(|d| Dist::Exponential { mean: d.0.as_secs_f64() });
        let config = WebConfig {
            connections,
            pages: own.pages.or(default.pages),
            request_bytes: own.request_bytes.unwrap_or(default.request_bytes),
            reading_s: reading.unwrap_or(default.reading_s),
            period: common.period(builder)?,
            tcp: over.config(placed.ends.first.0.is_ipv6())?,
            ..default
        };
        let seed = builder.app_seed();
        common.add(builder, &placed, config.pair(&placed.ends, seed))
    }
}

impl Connection {
    /// The parameters of the profile, overridden by the given keys.
    fn config(&self, v6: bool) -> Result<Config, Mistake> {
        let VariantName(variant) = self.variant;
        let mut config = match self.profile {
            Profile::Ns235 => Config::ns2_35(variant),
            Profile::Ns2001 => Config::ns2_2001(variant),
            Profile::Modern => Config::modern(variant),
        };
        // The profiles assume IPv4 headers.
        let more = if v6 { 20 } else { 0 };
        config.header += more;
        config.ack_bytes += more;
        if let Some(written) = &self.packet {
            let packet: u32 = written.get_ref().get();
            if packet <= config.header {
                let message = format!("the headers alone have {} bytes", config.header);
                return Err(Mistake::of(written, message));
            }
            config.mss = packet - config.header;
        }
        config.window = self.window.map_or(config.window, Within::get);
        config.initial_window = self.initial_window.map_or(config.initial_window, Within::get);
        config.initial_ssthresh =
            self.initial_ssthresh.map(Within::get).or(config.initial_ssthresh);
        config.rto.min = self.min_rto.map_or(config.rto.min, |d| d.0);
        config.rto.tick = self.tick.map_or(config.rto.tick, |d| d.0);
        config.delayed_ack = self.delayed_ack.map_or(config.delayed_ack, |d| d.0);
        config.dupack_threshold =
            self.dupack_threshold.map_or(config.dupack_threshold, Within::get);
        config.ack_bytes = self.ack_size.map_or(config.ack_bytes, Within::get);
        Ok(config)
    }
}

/// A variant of TCP, by name.
#[derive(Clone, Copy)]
struct VariantName(Variant);

impl Default for VariantName {
    fn default() -> VariantName {
        VariantName(Variant::Sack)
    }
}

impl Serialize for VariantName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

from_text!(VariantName, "text", |name: &str| {
    let found = Variant::ALL.into_iter().find(|variant| variant.name() == name);
    found.map(VariantName).ok_or_else(|| {
        let known = Variant::ALL.map(Variant::name);
        format!("there is no variant {name}{}", hint(name, &known))
    })
});

/// A named set of parameters.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
enum Profile {
    /// Current RFCs.
    #[default]
    #[serde(rename = "modern")]
    Modern,
    /// The defaults of ns-2.35.
    #[serde(rename = "ns-2.35")]
    Ns235,
    /// Ns-2 before May 2001.
    #[serde(rename = "ns-2-2001")]
    Ns2001,
}

/// A time, or `false`.
#[derive(Clone, Copy, JsonSchema)]
#[schemars(inline, with = "Duration")]
struct DelayedAck(Option<Span>);

impl<'de> Deserialize<'de> for DelayedAck {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = DelayedAck;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a time, or false")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<DelayedAck, E> {
                let span = segue_text::units::duration(text).map_err(E::custom)?;
                Ok(DelayedAck(Some(span)))
            }
            fn visit_bool<E: de::Error>(self, delayed: bool) -> Result<DelayedAck, E> {
                let unclear = || E::custom("how long may it wait? Write for example \"40ms\"");
                if delayed { Err(unclear()) } else { Ok(DelayedAck(None)) }
            }
        }
        from.deserialize_any(Visitor)
    }
}
