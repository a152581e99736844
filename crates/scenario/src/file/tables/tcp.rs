//! `[[tcp]]`, `[[ftp]]`, `[[web]]`: applications over TCP, and the keys of a connection.

use segue_clock::Span;
use segue_grammar::{Duration, Mistake, hint};
use segue_traffic::apps::{Dist, FtpConfig, WebConfig};
use segue_traffic::tcp::{Config, Endpoint, GREEDY, Sink, SinkAgent, Source, SourceAgent, Variant};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::apps::{App, Placed, TCP as PROTOCOL};
use crate::file::builder::Builder;
use crate::file::table::{Kind, Table};

pub(super) const TCP: Kind = Kind::of::<App<Connection, Tcp>>("tcp", &[]);
pub(super) const FTP: Kind = Kind::of::<App<Connection, Ftp>>("ftp", &[]);
pub(super) const WEB: Kind = Kind::of::<App<Connection, Web>>("web", &[]);

/// The keys of a connection.
#[derive(Deserialize)]
struct Connection {
    /// The congestion control.
    variant: Option<VariantName>,
    /// The profile that supplies missing keys.
    profile: Option<Profile>,
    /// Bytes of a full data packet with its IP and TCP headers.
    packet: Option<Spanned<u32>>,
    /// Maximum window in packets.
    window: Option<Spanned<u32>>,
    /// Initial window in packets.
    initial_window: Option<Spanned<u32>>,
    /// Initial slow-start threshold in packets.
    initial_ssthresh: Option<Spanned<u32>>,
    /// Minimum retransmission timeout.
    min_rto: Option<Duration>,
    /// Granularity of the clock.
    tick: Option<Spanned<Duration>>,
    /// How long an acknowledgement may wait for a second segment.
    delayed_ack: Option<DelayedAck>,
    /// Number of duplicate acknowledgements that indicate a loss.
    dupack_threshold: Option<Spanned<u32>>,
    /// Bytes of a packet that only acknowledges.
    ack_size: Option<Spanned<u32>>,
}

/// A stream of bytes over TCP.
#[derive(Deserialize)]
struct Tcp {
    /// Number of bytes; endless by default.
    bytes: Option<u64>,
}

/// Files sent to the requesting end.
#[derive(Deserialize)]
struct Ftp {
    /// Bytes of a file; by default, one endless file.
    file_bytes: Option<u64>,
    /// Number of consecutive files.
    files: Option<u64>,
    /// Time from the end of a file to the start of the next.
    pause: Option<Duration>,
    /// The requesting end sends the files.
    upload: Option<bool>,
}

/// Pages that are read one after another.
#[derive(Deserialize)]
struct Web {
    /// Source of sizes and times.
    #[serde(default)]
    model: WebModel,
    /// Number of pages.
    pages: Option<u64>,
    /// Number of parallel connections.
    connections: Option<u16>,
    /// Bytes of a request.
    request_bytes: Option<u32>,
    /// Mean reading time of a page.
    reading: Option<Duration>,
}

/// Source of sizes and times of pages.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
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
        let has_pauses = own.pause.is_some_and(|pause| pause.0 > Span::ZERO);
        if own.file_bytes.is_none() || own.files.is_none() && !has_pauses {
            common.note_standstill(builder, &placed, PROTOCOL);
        }
        let config = FtpConfig {
            file_bytes: own.file_bytes,
            files: own.files,
            pause: own.pause.map_or(Span::ZERO, |d| d.0),
            upload: own.upload.unwrap_or(false),
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
        let connections = own.connections.unwrap_or(default.connections);
        if !(1..=1_000).contains(&connections) {
            let message = format!("{connections} does not lie between 1 and 1000");
            return Err(Mistake::beside(&common.name, "connections", message));
        }
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
        let variant = self.variant.map_or(Variant::Sack, |v| v.0);
        let mut config = match self.profile.unwrap_or(Profile::Modern) {
            Profile::Ns235 => Config::ns2_35(variant),
            Profile::Ns2001 => Config::ns2_2001(variant),
            Profile::Modern => Config::modern(variant),
        };
        // The profiles assume IPv4 headers.
        let more = if v6 { 20 } else { 0 };
        config.header += more;
        config.ack_bytes += more;
        let packet = positive(self.packet.as_ref(), 65_535)?.unwrap_or(config.mss + config.header);
        if let Some(written) = self.packet.as_ref().filter(|_| packet <= config.header) {
            let message = format!("the headers alone have {} bytes", config.header);
            return Err(Mistake::of(written, message));
        }
        config.mss = packet - config.header;
        config.window = positive(self.window.as_ref(), 1 << 20)?.unwrap_or(config.window);
        let initial = positive(self.initial_window.as_ref(), 1 << 20)?;
        config.initial_window = initial.unwrap_or(config.initial_window);
        let ssthresh = positive(self.initial_ssthresh.as_ref(), 1 << 20)?;
        config.initial_ssthresh = ssthresh.or(config.initial_ssthresh);
        config.rto.min = self.min_rto.map_or(config.rto.min, |d| d.0);
        if let Some(tick) = &self.tick {
            config.rto.tick = tick.get_ref().0;
            if config.rto.tick.0 == 0 {
                return Err(Mistake::of(tick, "a clock needs a tick above 0"));
            }
        }
        config.delayed_ack = self.delayed_ack.map_or(config.delayed_ack, |d| d.0);
        let threshold = positive(self.dupack_threshold.as_ref(), 1_000)?;
        config.dupack_threshold = threshold.unwrap_or(config.dupack_threshold);
        config.ack_bytes = positive(self.ack_size.as_ref(), 65_535)?.unwrap_or(config.ack_bytes);
        Ok(config)
    }
}

/// A number, which must be between 1 and `most`.
fn positive(value: Option<&Spanned<u32>>, most: u32) -> Result<Option<u32>, Mistake> {
    match value {
        Some(n) if !(1..=most).contains(n.get_ref()) => {
            Err(Mistake::of(n, format!("{} does not lie between 1 and {most}", n.get_ref())))
        }
        value => Ok(value.map(|n| *n.get_ref())),
    }
}

/// A variant of TCP, by name.
#[derive(Clone, Copy)]
struct VariantName(Variant);

impl<'de> Deserialize<'de> for VariantName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let found = Variant::ALL.into_iter().find(|variant| variant.name() == name);
        found.map(VariantName).ok_or_else(|| {
            let known = Variant::ALL.map(Variant::name);
            de::Error::custom(format!("there is no variant {name}{}", hint(&name, &known)))
        })
    }
}

/// A named set of parameters.
#[derive(Clone, Copy, Deserialize)]
enum Profile {
    /// The defaults of ns-2.35.
    #[serde(rename = "ns-2.35")]
    Ns235,
    /// ns-2 before May 2001.
    #[serde(rename = "ns-2-2001")]
    Ns2001,
    /// Current RFCs.
    #[serde(rename = "modern")]
    Modern,
}

/// A time, or `false`.
#[derive(Clone, Copy)]
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
