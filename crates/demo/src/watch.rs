//! Records the daemons' status while the demonstration runs.

use segue_clock::Time;
use segue_daemon::control::{EventRecord, FlowStatus, PathStatus, Status, Tunnels};

use super::stage::Stage;
use super::traffic::{TCP_PORT, VOICE_PORT};

/// Everything that the daemons reported. Times are in seconds from the start.
pub struct Watch {
    start: Time,
    /// The host's paths at each poll.
    pub looks: Vec<Look>,
    /// The path of each flow of the demonstration, at each poll of the flows.
    pub uses: Vec<(f64, Vec<Use>)>,
    /// The host's events since the start.
    pub host_events: Vec<(f64, EventRecord<Tunnels>)>,
    /// The anchor's events since the start.
    pub anchor_events: Vec<(f64, EventRecord<Tunnels>)>,
    /// The host's last status.
    pub last: Option<Status<Tunnels>>,
    next: [u64; 2],
}

/// The path that carries a flow in one direction.
pub struct Use {
    /// The flow's name in the report.
    pub flow: String,
    /// The path.
    pub path: String,
}

/// The flows are polled once every this many polls of the paths.
const FLOWS_EVERY: usize = 4;

/// One poll of the host.
pub struct Look {
    /// When it took place, in seconds from the start.
    pub at: f64,
    /// The paths.
    pub paths: Vec<PathStatus>,
    /// The path of each class, by the class's name.
    pub classes: Vec<(String, String)>,
}

impl Watch {
    /// An empty record.
    pub fn new(start: Time) -> Watch {
        Watch {
            start,
            looks: Vec::new(),
            uses: Vec::new(),
            host_events: Vec::new(),
            anchor_events: Vec::new(),
            last: None,
            next: [0, 0],
        }
    }

    /// Polls both daemons once.
    pub fn poll(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let mut host = stage.status("host", self.next[0])?;
        let anchor = stage.status("anchor", self.next[1])?;
        self.next = [host.head.next_event, anchor.head.next_event];
        self.host_events.extend(self.since_start(std::mem::take(&mut host.events)));
        self.anchor_events.extend(self.since_start(anchor.events));
        self.looks.push(Look {
            at: Time(host.head.now_ns).as_secs_f64() - self.start.as_secs_f64(),
            paths: host.body.paths.clone(),
            classes: host.body.classes.clone().into_iter().collect(),
        });
        if self.looks.len().is_multiple_of(FLOWS_EVERY) {
            let at = Time(host.head.now_ns).as_secs_f64() - self.start.as_secs_f64();
            let up = uses(&stage.flows("host")?, "up");
            let down = uses(&stage.flows("anchor")?, "down");
            self.uses.push((at, down.into_iter().chain(up).collect()));
        }
        self.last = Some(host);
        Ok(())
    }

    fn since_start(&self, events: Vec<EventRecord<Tunnels>>) -> Vec<(f64, EventRecord<Tunnels>)> {
        let start = self.start.as_secs_f64();
        events
            .into_iter()
            .map(|event| (Time(event.at_ns).as_secs_f64() - start, event))
            .filter(|(at, _)| *at >= 0.0)
            .collect()
    }

    /// The status of the named path at each poll.
    pub fn path<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (f64, &'a PathStatus)> {
        self.looks
            .iter()
            .filter_map(move |look| Some((look.at, look.paths.iter().find(|p| p.name == name)?)))
    }
}

/// Finds the demonstration's own flows among a daemon's, each with the path that carries it.
fn uses(flows: &[FlowStatus], direction: &str) -> Vec<Use> {
    let named = |flow: &FlowStatus| {
        let port = |port: u16| flow.flow.contains(&format!(":{port}"));
        let name = if port(VOICE_PORT) {
            "voice"
        } else if port(TCP_PORT) {
            "download"
        } else {
            return None;
        };
        let path = flow.via.as_ref().unwrap_or(&flow.path).clone();
        Some(Use { flow: format!("{name}, {direction}"), path })
    };
    flows.iter().filter_map(named).collect()
}
