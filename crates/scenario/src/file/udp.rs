//! `[[voip]]`, `[[video]]`, `[[conference]]`: applications over UDP, and how they are measured.

use std::sync::Arc;

use segue_clock::Time;
use segue_grammar::Duration;
use segue_grammar::link::Rate;
use segue_traffic::apps::{
    ConferenceConfig, Forwarding, MeterConfig, Spurts, Trace, TraceUnits, VideoConfig, VoipConfig,
    links_of,
};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::Mistake;
use super::common::{Common, Placed, UDP, refused};
use super::network::Builder;
use super::tables::Name;

/// Defines an application's table over UDP: the given keys, those of every application and those of
/// its measurement.
macro_rules! udp_table {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($keys:tt)* }) => {
        $crate::file::common::app_table! {
            $(#[$meta])*
            $vis struct $name {
                /// Code point of its packets.
                pub dscp: Option<Spanned<u8>>,
                /// Time after which a packet counts as lost.
                pub loss_after: Option<Spanned<Duration>>,
                /// What delay variance is counted from.
                #[serde(default)]
                pub forwarding: ForwardingName,
                /// Instants of handovers that no interface change shows.
                #[serde(default)]
                pub handovers: Vec<Spanned<Duration>>,
                /// How long before its instant a handover's interval begins.
                pub handover_lead: Option<Duration>,
                /// How long the interval of a handover is.
                pub handover_span: Option<Duration>,
                $($keys)*
            }
        }

        impl $name {
            fn measured<'a>(&'a self) -> Measured<'a> {
                Measured {
                    common: self.common(),
                    dscp: self.dscp.as_ref(),
                    loss_after: self.loss_after.as_ref(),
                    forwarding: self.forwarding,
                    handovers: &self.handovers,
                    lead: self.handover_lead,
                    span: self.handover_span,
                }
            }
        }
    };
}

udp_table! {
    /// A telephone call.
    pub struct Voip {
        /// Supplies the missing keys among those below.
        #[serde(default)]
        pub codec: Codec,
        /// Time between packets.
        pub packet_interval: Option<Duration>,
        /// Bytes of speech in a packet.
        pub payload_bytes: Option<u32>,
        /// Talk spurts and pauses.
        pub spurts: Option<SpurtsText>,
    }
}

udp_table! {
    /// A stream of video from the second end to the first.
    pub struct Video {
        /// A file of frames, named from the scenario's directory.
        pub trace: Option<Name>,
        /// Unit of the times in the file.
        #[serde(default)]
        pub trace_time: TimeUnit,
        /// Unit of the sizes in the file.
        #[serde(default)]
        pub trace_size: SizeUnit,
        /// Most bytes of video in a datagram.
        pub max_payload_bytes: Option<u32>,
        /// Spreads the datagrams of a frame over its time.
        pub paced: Option<bool>,
    }
}

udp_table! {
    /// A videoconference.
    pub struct Conference {
        /// A file of frames for both ends, named from the scenario's directory.
        pub trace: Option<Name>,
        /// Unit of the times in the file.
        #[serde(default)]
        pub trace_time: TimeUnit,
        /// Unit of the sizes in the file.
        #[serde(default)]
        pub trace_size: SizeUnit,
        /// Rate of the pictures.
        pub rate: Option<Rate>,
        /// Frames a second.
        pub frames_per_s: Option<u32>,
        /// Most bytes of video in a datagram.
        pub max_payload_bytes: Option<u32>,
        /// Speech.
        #[serde(default = "Codec::of_conferences")]
        pub codec: Codec,
    }
}

/// How an application is measured.
struct Measured<'a> {
    common: Common<'a>,
    dscp: Option<&'a Spanned<u8>>,
    loss_after: Option<&'a Spanned<Duration>>,
    forwarding: ForwardingName,
    handovers: &'a [Spanned<Duration>],
    lead: Option<Duration>,
    span: Option<Duration>,
}

impl Measured<'_> {
    fn dscp(&self, default: u8) -> Result<u8, Mistake> {
        match self.dscp {
            Some(dscp) if *dscp.get_ref() > 63 => {
                Err(Mistake::of(dscp, "a code point lies between 0 and 63"))
            }
            dscp => Ok(dscp.map_or(default, |dscp| *dscp.get_ref())),
        }
    }

    fn meter(
        &self,
        builder: &Builder<'_>,
        placed: &Placed,
        dscp: u8,
    ) -> Result<MeterConfig, Mistake> {
        let default = MeterConfig::default();
        let loss_after = self.loss_after.map_or(default.loss_after, |d| d.get_ref().0);
        if let Some(written) = self.loss_after.filter(|_| loss_after.0 == 0) {
            return Err(Mistake::of(written, "every packet would be lost"));
        }
        let mut handovers: Vec<Time> = Vec::new();
        for at in self.handovers {
            let instant = builder.within(at)?;
            if handovers.last().is_some_and(|last| *last >= instant) {
                return Err(Mistake::of(at, "it is not later than the one before it"));
            }
            handovers.push(instant);
        }
        let forwarding = match self.forwarding {
            ForwardingName::Minimum => Forwarding::Minimum,
            ForwardingName::Links => {
                let links = |back| {
                    let (node, probe) = placed.probe(UDP, dscp, back);
                    links_of(&builder.network, node, &probe).ok_or_else(|| {
                        let message = "its way leads into a tunnel: minimum is for that";
                        Mistake::beside(self.common.name, "forwarding", message)
                    })
                };
                Forwarding::EachWay { up: links(false)?, down: links(true)? }
            }
        };
        let handover_lead = self.lead.map_or(default.handover_lead, |d| d.0);
        let handover_span = self.span.map(|d| d.0).or(default.handover_span);
        Ok(MeterConfig {
            loss_after,
            forwarding,
            handover_lead: handover_lead.min(loss_after),
            handover_span,
            handovers,
            ..default
        })
    }
}

/// Adds `[[voip]]`.
pub fn add_voip(builder: &mut Builder<'_>, voip: &Voip) -> Result<(), Mistake> {
    let (measured, codec) = (voip.measured(), voip.codec.config());
    let common = measured.common;
    let dscp = measured.dscp(codec.dscp)?;
    let placed = builder.place(common, UDP, (1, 1), dscp)?;
    let config = VoipConfig {
        packet_interval: voip.packet_interval.map_or(codec.packet_interval, |d| d.0),
        payload_bytes: voip.payload_bytes.unwrap_or(codec.payload_bytes),
        spurts: voip.spurts.map(|s| s.0),
        period: builder.period(common)?,
        dscp,
        meter: measured.meter(builder, &placed, dscp)?,
    };
    let seed = builder.app_seed();
    let pair = config.pair(&placed.ends, seed).map_err(|e| refused(common.name, &e))?;
    pair.add(&mut builder.network, placed.nodes, common.name.get_ref());
    Ok(())
}

/// Adds `[[video]]`.
pub fn add_video(builder: &mut Builder<'_>, video: &Video) -> Result<(), Mistake> {
    let measured = video.measured();
    let common = measured.common;
    let default = VideoConfig::default();
    let dscp = measured.dscp(default.dscp)?;
    let placed = builder.place(common, UDP, (1, 1), dscp)?;
    let units = units(video.trace_time, video.trace_size);
    let trace = video.trace.as_ref().map(|name| read_trace(builder, name, units)).transpose()?;
    let config = VideoConfig {
        trace: trace.unwrap_or(default.trace),
        max_payload_bytes: video.max_payload_bytes.unwrap_or(default.max_payload_bytes),
        paced: video.paced.unwrap_or(default.paced),
        period: builder.period(common)?,
        dscp,
        meter: measured.meter(builder, &placed, dscp)?,
    };
    let pair = config.pair(&placed.ends).map_err(|e| refused(common.name, &e))?;
    pair.add(&mut builder.network, placed.nodes, common.name.get_ref());
    Ok(())
}

/// Adds `[[conference]]`.
pub fn add_conference(builder: &mut Builder<'_>, conference: &Conference) -> Result<(), Mistake> {
    let measured = conference.measured();
    let common = measured.common;
    let default = ConferenceConfig::default();
    let dscp = measured.dscp(default.dscp)?;
    let placed = builder.place(common, UDP, (2, 2), dscp)?;
    let units = units(conference.trace_time, conference.trace_size);
    let trace = conference.trace.as_ref().map(|name| read_trace(builder, name, units));
    let mut pictures = default.pictures;
    pictures.frames_per_s = conference.frames_per_s.unwrap_or(pictures.frames_per_s);
    pictures.rate_bps = conference.rate.and_then(|r| r.0).unwrap_or(pictures.rate_bps);
    let config = ConferenceConfig {
        pictures,
        trace: trace.transpose()?,
        max_payload_bytes: conference.max_payload_bytes.unwrap_or(default.max_payload_bytes),
        dscp,
        voice: conference.codec.config(),
        period: builder.period(common)?,
        meter: measured.meter(builder, &placed, dscp)?,
    };
    let seed = builder.app_seed();
    let pair = config.pair(&placed.ends, seed).map_err(|e| refused(common.name, &e))?;
    pair.add(&mut builder.network, placed.nodes, common.name.get_ref());
    Ok(())
}

fn units(time: TimeUnit, size: SizeUnit) -> TraceUnits {
    TraceUnits { seconds: time == TimeUnit::S, bits: size == SizeUnit::Bits }
}

fn read_trace(
    builder: &Builder<'_>,
    file: &Name,
    units: TraceUnits,
) -> Result<Arc<Trace>, Mistake> {
    let text = builder.read_beside(file)?;
    let trace = Trace::parse(&text, units);
    trace.map(Arc::new).map_err(|e| Mistake::of(file, format!("{}:{e}", file.get_ref())))
}

/// What delay variance is counted from.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardingName {
    /// The least delay that was seen.
    #[default]
    Minimum,
    /// Rates and delays of the links.
    Links,
}

/// Speech as it is coded.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// 160 bytes every 20 ms.
    #[default]
    G711,
    /// 20 bytes every 20 ms.
    G729,
}

impl Codec {
    fn of_conferences() -> Codec {
        Codec::G729
    }

    fn config(self) -> VoipConfig {
        match self {
            Codec::G711 => VoipConfig::g711(),
            Codec::G729 => VoipConfig::g729(),
        }
    }
}

/// Unit of the times in a trace of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Milliseconds.
    #[default]
    Ms,
    /// Seconds.
    S,
}

/// Unit of the sizes in a trace of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeUnit {
    /// Bytes.
    #[default]
    Bytes,
    /// Bits.
    Bits,
}

/// Talk spurts: by name, or their mean lengths.
#[derive(Clone, Copy, Debug)]
pub struct SpurtsText(Spurts);

impl<'de> Deserialize<'de> for SpurtsText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = SpurtsText;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("\"p59\", \"goodman-wei\", or { talk, pause }")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<SpurtsText, E> {
                match text {
                    "p59" => Ok(SpurtsText(Spurts::P59)),
                    "goodman-wei" => Ok(SpurtsText(Spurts::GOODMAN_WEI)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<SpurtsText, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Means {
                    talk: Duration,
                    pause: Duration,
                }
                let means = de::value::MapAccessDeserializer::new(map);
                let Means { talk, pause } = Means::deserialize(means)?;
                let (talk_s, pause_s) = (talk.0.as_secs_f64(), pause.0.as_secs_f64());
                Ok(SpurtsText(Spurts { talk_s, pause_s }))
            }
        }
        from.deserialize_any(Visitor)
    }
}
