//! `[[voip]]`, `[[video]]`, `[[conference]]`: applications over UDP, and the measurement of their quality.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_clock::Time;
use segue_grammar::link::Rate;
use segue_grammar::{Duration, Mistake, Name, Spanned, Within, described, parts};
use segue_traffic::apps::{
    ConferenceConfig, Forwarding, MeterConfig, Spurts, Trace, TraceUnits, VideoConfig, VoipConfig,
    links_of,
};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::apps::{App, Common, Placed, UDP};
use super::network::CodePoint;
use crate::file::builder::Builder;
use crate::file::table::{Kind, Table};

pub(super) const VOIP: Kind = Kind::of::<App<Measured, Voip>>("voip", &[]);
pub(super) const VIDEO: Kind = Kind::of::<App<Measured, Video>>("video", &[]);
pub(super) const CONFERENCE: Kind = Kind::of::<App<Measured, Conference>>("conference", &[]);

/// Measurement settings of an application.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Measured {
    /// Code point of its packets
    #[schemars(extend("x-unset" = "46 for `voip`, 34 for the others"))]
    dscp: Option<CodePoint>,
    /// Time after which a packet counts as lost
    #[serde(default)]
    loss_after: Duration<2_000, 1>,
    /// Base of the delay variance
    #[serde(default)]
    forwarding: ForwardingName,
    /// Times of handovers that no interface shows, such as those of a tunnel
    #[serde(default)]
    handovers: Vec<Spanned<Duration>>,
    /// How long before the handover its interval begins
    #[serde(default)]
    handover_lead: Duration<100>,
    /// Length of the interval
    #[schemars(extend("x-unset" = "until the next one"))]
    handover_span: Option<Duration>,
}

/// A telephone call.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Voip {
    /// The codec, which sets the next two keys
    #[serde(default)]
    codec: Codec,
    /// Time between packets
    #[schemars(extend("x-unset" = "the codec's"))]
    packet_interval: Option<Duration>,
    /// Bytes of speech in each
    #[schemars(extend("x-unset" = "the codec's"))]
    payload_bytes: Option<u32>,
    /// Talk spurts
    #[schemars(extend("x-unset" = "packets all the time"))]
    spurts: Option<SpurtsText>,
}

/// A stream of video from the second end to the first.
struct Video {
    frames: Frames,
    own: VideoKeys,
}

parts!(Video { frames: Frames, own: VideoKeys });

/// A videoconference.
struct Conference {
    frames: Frames,
    own: ConferenceKeys,
}

parts!(Conference { frames: Frames, own: ConferenceKeys });

/// The keys of pictures.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Frames {
    /// A file of frames, relative to the scenario's directory
    #[schemars(extend("x-unset" = "a small built-in one; `conference`: pictures generated from the seed"))]
    trace: Option<Name>,
    /// Unit of its times
    #[serde(default)]
    trace_time: TimeUnit,
    /// Unit of its sizes
    #[serde(default)]
    trace_size: SizeUnit,
    /// Maximum bytes in a packet
    #[serde(default)]
    max_payload_bytes: Within<1_440, 0, { u32::MAX as i64 }>,
}

/// The further keys of a video.
#[derive(Deserialize, JsonSchema)]
pub(super) struct VideoKeys {
    /// A frame's packets are spread over its time
    #[serde(default)]
    paced: bool,
}

/// The further keys of a videoconference.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ConferenceKeys {
    /// Bit rate of the pictures
    #[schemars(extend("x-unset" = "64 kbit/s"))]
    rate: Option<Rate>,
    /// Pictures per second
    #[serde(default)]
    frames_per_s: Within<15, 0, { u32::MAX as i64 }>,
    /// Codec of the speech
    #[serde(default = "Codec::of_conferences")]
    codec: Codec,
}

impl Measured {
    fn meter(
        &self,
        common: &Common,
        builder: &Builder<'_>,
        placed: &Placed,
        dscp: u8,
    ) -> Result<MeterConfig, Mistake> {
        let default = MeterConfig::default();
        let Duration(loss_after) = self.loss_after;
        let mut handovers: Vec<Time> = Vec::new();
        for at in &self.handovers {
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
                        Mistake::beside(&common.name, "forwarding", message)
                    })
                };
                Forwarding::EachWay { up: links(false)?, down: links(true)? }
            }
        };
        let handover_span = self.handover_span.map(|d| d.0).or(default.handover_span);
        Ok(MeterConfig {
            loss_after,
            forwarding,
            handover_lead: self.handover_lead.0.min(loss_after),
            handover_span,
            handovers,
            ..default
        })
    }
}

impl Table for App<Measured, Voip> {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let App { common, over, own } = self;
        let codec = own.codec.config();
        let dscp = over.dscp.map_or(codec.dscp, Within::get);
        let placed = common.place(builder, UDP, (1, 1), dscp)?;
        let config = VoipConfig {
            packet_interval: own.packet_interval.map_or(codec.packet_interval, |d| d.0),
            payload_bytes: own.payload_bytes.unwrap_or(codec.payload_bytes),
            spurts: own.spurts.map(|s| s.0),
            period: common.period(builder)?,
            dscp,
            meter: over.meter(common, builder, &placed, dscp)?,
        };
        let seed = builder.app_seed();
        common.add(builder, &placed, config.pair(&placed.ends, seed))
    }
}

impl Table for App<Measured, Video> {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let App { common, over, own: Video { frames, own } } = self;
        let default = VideoConfig::default();
        let dscp = over.dscp.map_or(default.dscp, Within::get);
        let placed = common.place(builder, UDP, (1, 1), dscp)?;
        let trace = frames.read(builder)?;
        let config = VideoConfig {
            trace: trace.unwrap_or(default.trace),
            max_payload_bytes: frames.max_payload_bytes.get(),
            paced: own.paced,
            period: common.period(builder)?,
            dscp,
            meter: over.meter(common, builder, &placed, dscp)?,
        };
        common.add(builder, &placed, config.pair(&placed.ends))
    }
}

impl Table for App<Measured, Conference> {
    fn reach(&self, builder: &mut Builder<'_>) -> Result<(), Mistake> {
        let App { common, over, own: Conference { frames, own } } = self;
        let default = ConferenceConfig::default();
        let dscp = over.dscp.map_or(default.dscp, Within::get);
        let placed = common.place(builder, UDP, (2, 2), dscp)?;
        let trace = frames.read(builder)?;
        let mut pictures = default.pictures;
        pictures.frames_per_s = own.frames_per_s.get();
        pictures.rate_bps = own.rate.and_then(|r| r.0).unwrap_or(pictures.rate_bps);
        let config = ConferenceConfig {
            pictures,
            trace,
            max_payload_bytes: frames.max_payload_bytes.get(),
            dscp,
            voice: own.codec.config(),
            period: common.period(builder)?,
            meter: over.meter(common, builder, &placed, dscp)?,
        };
        let seed = builder.app_seed();
        common.add(builder, &placed, config.pair(&placed.ends, seed))
    }
}

impl Frames {
    /// The trace, if there is a file.
    fn read(&self, builder: &Builder<'_>) -> Result<Option<Arc<Trace>>, Mistake> {
        let Some(file) = &self.trace else { return Ok(None) };
        let text = builder.read_file(file)?;
        let (seconds, bits) = (self.trace_time == TimeUnit::S, self.trace_size == SizeUnit::Bits);
        let trace = Trace::parse(&text, TraceUnits { seconds, bits });
        let trace = trace.map_err(|e| Mistake::of(file, format!("{}:{e}", file.get_ref())))?;
        Ok(Some(Arc::new(trace)))
    }
}

/// Reference of the delay variation.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ForwardingName {
    /// The minimum delay seen.
    #[default]
    Minimum,
    /// Rates and delays of the links.
    Links,
}

/// A speech codec.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-plain" = true))]
enum Codec {
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
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-plain" = true))]
enum TimeUnit {
    /// Milliseconds.
    #[default]
    Ms,
    /// Seconds.
    S,
}

/// Unit of the sizes in a trace of frames.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("x-plain" = true))]
enum SizeUnit {
    /// Bytes.
    #[default]
    Bytes,
    /// Bits.
    Bits,
}

/// Talk spurts: by name, or by their mean lengths.
#[derive(Clone, Copy)]
struct SpurtsText(Spurts);

described!(SpurtsText, {
    "type": ["string", "object"],
    "x-value": "`\"p59\"`, `\"goodman-wei\"`, `{ talk = \"1s\", pause = \"1.35s\" }`",
});

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
