//! `[[tcp]]`, and the keys of a TCP connection.

use segue_clock::Span;
use segue_grammar::Duration;
use segue_traffic::apps::{Dist, FtpConfig, WebConfig};
use segue_traffic::tcp::{Config, Endpoint, GREEDY, Sink, SinkAgent, Source, SourceAgent, Variant};
use serde::{Deserialize, Deserializer, de};

use super::common::{Placed, TCP, refused};
use super::network::Builder;
use super::{Mistake, hint};

/// Defines an application's table over TCP: the given keys, those of every application and those of
/// a connection.
macro_rules! tcp_table {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($keys:tt)* }) => {
        $crate::file::common::app_table! {
            $(#[$meta])*
            $vis struct $name {
                /// Which sender.
                pub variant: Option<$crate::file::tcp::VariantName>,
                /// The profile that supplies missing keys.
                pub profile: Option<$crate::file::tcp::Profile>,
                /// Bytes of a full data packet with its IP and TCP headers.
                pub packet: Option<toml::Spanned<u32>>,
                /// Maximum window in packets.
                pub window: Option<toml::Spanned<u32>>,
                /// First window in packets.
                pub initial_window: Option<toml::Spanned<u32>>,
                /// First slow-start threshold in packets.
                pub initial_ssthresh: Option<toml::Spanned<u32>>,
                /// Shortest retransmission timeout.
                pub min_rto: Option<segue_grammar::Duration>,
                /// Granularity of the clock.
                pub tick: Option<toml::Spanned<segue_grammar::Duration>>,
                /// How long an acknowledgement may wait for a second segment.
                pub delayed_ack: Option<$crate::file::tcp::DelayedAck>,
                /// Duplicates that make a loss.
                pub dupack_threshold: Option<toml::Spanned<u32>>,
                /// Bytes of a packet that only acknowledges.
                pub ack_size: Option<toml::Spanned<u32>>,
                $($keys)*
            }
        }

        impl $name {
            /// The connection's parameters between addresses of this family.
            fn config(&self, v6: bool) -> Result<segue_traffic::tcp::Config, $crate::file::Mistake> {
                $crate::file::tcp::Keys {
                    variant: self.variant,
                    profile: self.profile,
                    packet: self.packet.as_ref(),
                    window: self.window.as_ref(),
                    initial_window: self.initial_window.as_ref(),
                    initial_ssthresh: self.initial_ssthresh.as_ref(),
                    min_rto: self.min_rto,
                    tick: self.tick.as_ref(),
                    delayed_ack: self.delayed_ack,
                    dupack_threshold: self.dupack_threshold.as_ref(),
                    ack_size: self.ack_size.as_ref(),
                }
                .config(v6)
            }
        }
    };
}

tcp_table! {
    /// A stream of bytes over TCP.
    pub struct Tcp {
        /// How many bytes; by default endless.
        pub bytes: Option<u64>,
    }
}

tcp_table! {
    /// Files, to the end that asks.
    pub struct Ftp {
        /// Bytes of a file; by default one endless file.
        pub file_bytes: Option<u64>,
        /// How many successive files.
        pub files: Option<u64>,
        /// From the end of a file to the start of the next.
        pub pause: Option<Duration>,
        /// The end that asks sends.
        pub upload: Option<bool>,
    }
}

tcp_table! {
    /// Pages, read one after the other.
    pub struct Web {
        /// Where sizes and times come from.
        #[serde(default)]
        pub model: WebModel,
        /// How many pages.
        pub pages: Option<u64>,
        /// Connections at a time.
        pub connections: Option<u16>,
        /// Bytes of a request.
        pub request_bytes: Option<u32>,
        /// Mean time to read a page.
        pub reading: Option<Duration>,
    }
}

/// Where sizes and times of pages come from.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebModel {
    /// 3GPP2's C.R1002.
    #[default]
    #[serde(rename = "3gpp2")]
    Gpp2,
    /// ns-2's example of PagePool/WebTraf.
    #[serde(rename = "ns-2")]
    Ns2,
}

/// Adds `[[ftp]]`.
pub fn add_ftp(builder: &mut Builder<'_>, ftp: &Ftp) -> Result<(), Mistake> {
    let common = ftp.common();
    let placed = builder.place(common, TCP, (1, 1), 0)?;
    let config = FtpConfig {
        file_bytes: ftp.file_bytes,
        files: ftp.files,
        pause: ftp.pause.map_or(Span::ZERO, |d| d.0),
        upload: ftp.upload.unwrap_or(false),
        period: builder.period(common)?,
        tcp: ftp.config(placed.ends.first.0.is_ipv6())?,
    };
    let pair = config.pair(&placed.ends).map_err(|e| refused(common.name, &e))?;
    pair.add(&mut builder.network, placed.nodes, common.name.get_ref());
    Ok(())
}

/// Adds `[[web]]`.
pub fn add_web(builder: &mut Builder<'_>, web: &Web) -> Result<(), Mistake> {
    let common = web.common();
    let default = match web.model {
        WebModel::Gpp2 => WebConfig::default(),
        WebModel::Ns2 => WebConfig::ns2(),
    };
    let connections = web.connections.unwrap_or(default.connections);
    if !(1..=1_000).contains(&connections) {
        let message = format!("{connections} does not lie between 1 and 1000");
        return Err(Mistake::beside(common.name, "connections", message));
    }
    let placed = builder.place(common, TCP, (connections, 1), 0)?;
    let reading = web.reading.map(|d| Dist::Exponential { mean: d.0.as_secs_f64() });
    let config = WebConfig {
        connections,
        pages: web.pages.or(default.pages),
        request_bytes: web.request_bytes.unwrap_or(default.request_bytes),
        reading_s: reading.unwrap_or(default.reading_s),
        period: builder.period(common)?,
        tcp: web.config(placed.ends.first.0.is_ipv6())?,
        ..default
    };
    let seed = builder.app_seed();
    let pair = config.pair(&placed.ends, seed).map_err(|e| refused(common.name, &e))?;
    pair.add(&mut builder.network, placed.nodes, common.name.get_ref());
    Ok(())
}

/// The keys of a connection.
pub struct Keys<'a> {
    pub variant: Option<VariantName>,
    pub profile: Option<Profile>,
    pub packet: Option<&'a toml::Spanned<u32>>,
    pub window: Option<&'a toml::Spanned<u32>>,
    pub initial_window: Option<&'a toml::Spanned<u32>>,
    pub initial_ssthresh: Option<&'a toml::Spanned<u32>>,
    pub min_rto: Option<Duration>,
    pub tick: Option<&'a toml::Spanned<Duration>>,
    pub delayed_ack: Option<DelayedAck>,
    pub dupack_threshold: Option<&'a toml::Spanned<u32>>,
    pub ack_size: Option<&'a toml::Spanned<u32>>,
}

impl Keys<'_> {
    /// The parameters: the profile's, overridden by the given keys.
    pub fn config(&self, v6: bool) -> Result<Config, Mistake> {
        let variant = self.variant.map_or(Variant::Sack, |v| v.0);
        let mut config = match self.profile.unwrap_or(Profile::Modern) {
            Profile::Ns235 => Config::ns2_35(variant),
            Profile::Ns2001 => Config::ns2_2001(variant),
            Profile::Modern => Config::modern(variant),
        };
        // The profiles count IPv4's headers.
        let more = if v6 { 20 } else { 0 };
        config.header += more;
        config.ack_bytes += more;
        let packet = positive(self.packet, 65_535)?.unwrap_or(config.mss + config.header);
        if let Some(written) = self.packet.filter(|_| packet <= config.header) {
            let message = format!("the headers alone have {} bytes", config.header);
            return Err(Mistake::of(written, message));
        }
        config.mss = packet - config.header;
        config.window = positive(self.window, 1 << 20)?.unwrap_or(config.window);
        let initial = positive(self.initial_window, 1 << 20)?;
        config.initial_window = initial.unwrap_or(config.initial_window);
        let ssthresh = positive(self.initial_ssthresh, 1 << 20)?;
        config.initial_ssthresh = ssthresh.or(config.initial_ssthresh);
        config.rto.min = self.min_rto.map_or(config.rto.min, |d| d.0);
        if let Some(tick) = self.tick {
            config.rto.tick = tick.get_ref().0;
            if config.rto.tick.0 == 0 {
                return Err(Mistake::of(tick, "a clock needs a tick above 0"));
            }
        }
        config.delayed_ack = self.delayed_ack.map_or(config.delayed_ack, |d| d.0);
        let threshold = positive(self.dupack_threshold, 1_000)?;
        config.dupack_threshold = threshold.unwrap_or(config.dupack_threshold);
        config.ack_bytes = positive(self.ack_size, 65_535)?.unwrap_or(config.ack_bytes);
        Ok(config)
    }
}

/// A number that lies between 1 and `most`.
fn positive(value: Option<&toml::Spanned<u32>>, most: u32) -> Result<Option<u32>, Mistake> {
    match value {
        Some(n) if !(1..=most).contains(n.get_ref()) => {
            Err(Mistake::of(n, format!("{} does not lie between 1 and {most}", n.get_ref())))
        }
        value => Ok(value.map(|n| *n.get_ref())),
    }
}

/// Adds `[[tcp]]`.
pub fn add(builder: &mut Builder<'_>, tcp: &Tcp) -> Result<(), Mistake> {
    let common = tcp.common();
    let Placed { nodes, ends } = builder.place(common, TCP, (1, 1), 0)?;
    if let Some(start) = common.start.or(common.stop) {
        return Err(Mistake::of(start, "a stream of [[tcp]] begins with the run: see [[ftp]]"));
    }
    let config = tcp.config(ends.first.0.is_ipv6())?;
    let endpoint = Endpoint { local: ends.first, remote: ends.second };
    let source = Source::new(config, endpoint);
    let sink = Sink::new(config, endpoint.reversed());
    let bytes = tcp.bytes.unwrap_or(GREEDY);
    let (name, network) = (common.name.get_ref(), &mut builder.network);
    let source = Box::new(SourceAgent::new(source, bytes));
    network.add_agent(nodes.0, name, &[(TCP, ends.first.1)], source);
    network.add_agent(nodes.1, name, &[(TCP, ends.second.1)], Box::new(SinkAgent { sink }));
    Ok(())
}

/// A variant by its name.
#[derive(Clone, Copy, Debug)]
pub struct VariantName(Variant);

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

/// Parameters that are set together.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum Profile {
    /// ns-2.35's defaults.
    #[serde(rename = "ns-2.35")]
    Ns235,
    /// ns-2 before May 2001.
    #[serde(rename = "ns-2-2001")]
    Ns2001,
    /// The RFCs of today.
    #[serde(rename = "modern")]
    Modern,
}

/// A time, or `false`.
#[derive(Clone, Copy, Debug)]
pub struct DelayedAck(Option<segue_clock::Span>);

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
