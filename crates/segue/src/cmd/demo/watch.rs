//! What the daemons said while the demonstration ran.

use segue_clock::Time;

use super::stage::Stage;
use crate::control::{EventRecord, PathStatus, Status};

/// Everything that the daemons said, in seconds from the start.
pub struct Watch {
    start: Time,
    /// The host's paths at each look.
    pub looks: Vec<Look>,
    /// The host's events since the start.
    pub host_events: Vec<(f64, EventRecord)>,
    /// The anchor's events since the start.
    pub anchor_events: Vec<(f64, EventRecord)>,
    /// The host's last status.
    pub last: Option<Status>,
    next: [u64; 2],
}

/// One look at the host.
pub struct Look {
    /// When.
    pub at: f64,
    /// The paths.
    pub paths: Vec<PathStatus>,
    /// The path of each class, by the class's name.
    pub classes: Vec<(String, String)>,
}

impl Watch {
    /// Nothing seen yet.
    pub fn new(start: Time) -> Watch {
        Watch {
            start,
            looks: Vec::new(),
            host_events: Vec::new(),
            anchor_events: Vec::new(),
            last: None,
            next: [0, 0],
        }
    }

    /// Looks once.
    pub fn poll(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let mut host = stage.status("host", self.next[0])?;
        let anchor = stage.status("anchor", self.next[1])?;
        self.next = [host.next_event, anchor.next_event];
        self.host_events.extend(self.since_start(std::mem::take(&mut host.events)));
        self.anchor_events.extend(self.since_start(anchor.events));
        self.looks.push(Look {
            at: Time(host.now_ns).as_secs_f64() - self.start.as_secs_f64(),
            paths: host.paths.clone(),
            classes: host.classes.clone().into_iter().collect(),
        });
        self.last = Some(host);
        Ok(())
    }

    fn since_start(&self, events: Vec<EventRecord>) -> Vec<(f64, EventRecord)> {
        let start = self.start.as_secs_f64();
        events
            .into_iter()
            .map(|event| (Time(event.at_ns).as_secs_f64() - start, event))
            .filter(|(at, _)| *at >= 0.0)
            .collect()
    }

    /// The named path at each look.
    pub fn path<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (f64, &'a PathStatus)> {
        self.looks
            .iter()
            .filter_map(move |look| Some((look.at, look.paths.iter().find(|p| p.name == name)?)))
    }
}
