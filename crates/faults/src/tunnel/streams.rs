//! Decodes the signalling messages of anchor and hosts as they leave.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use segue_sim::tunnel::signal::{Datagram, Frame};
use segue_wire::signal::{FromAnchor, FromHost, decode};

/// New content of a datagram.
#[derive(Debug)]
pub(super) enum Said {
    /// An attempt to connect.
    Hello,
    /// A message of the host.
    Host,
    /// A message of the anchor.
    Anchor(FromAnchor),
    /// Flow counters: a question or its answer.
    Counts,
}

/// The streams of all connections, in both directions.
#[derive(Default)]
pub(super) struct Streams {
    streams: BTreeMap<(u64, bool), Stream>,
}

#[derive(Default)]
struct Stream {
    read: u64,
    /// The received part of an incomplete message.
    rest: Vec<u8>,
}

impl Streams {
    /// A datagram leaves the host or the anchor.
    pub(super) fn on_datagram(&mut self, datagram: &Datagram, from_host: bool) -> Vec<Said> {
        let key = (datagram.conn, from_host);
        match &datagram.frame {
            Frame::Hello { .. } if !self.streams.contains_key(&key) => {
                self.streams.insert(key, Stream::default());
                Vec::from([Said::Hello])
            }
            Frame::Stream { offset, bytes } => {
                let stream = self.streams.entry(key).or_default();
                let known = stream.read.saturating_sub(*offset) as usize;
                let Some(new) = bytes.get(known..) else { return Vec::new() };
                stream.read += new.len() as u64;
                stream.rest.extend_from_slice(new);
                let mut said = Vec::new();
                let rest = &mut stream.rest;
                if from_host {
                    let messages = core::iter::from_fn(|| decode::<FromHost>(rest).ok()?);
                    said.extend(messages.map(|message| match message {
                        FromHost::CountFlows { .. } => Said::Counts,
                        _ => Said::Host,
                    }));
                } else {
                    let messages = core::iter::from_fn(|| decode(rest).ok()?);
                    said.extend(messages.map(|message| match message {
                        FromAnchor::FlowCounts { .. } => Said::Counts,
                        message => Said::Anchor(message),
                    }));
                }
                said
            }
            _ => Vec::new(),
        }
    }
}
