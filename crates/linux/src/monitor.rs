//! Reports changes of the network interfaces.
//!
//! [`snapshot`] lists the devices of the caller's network namespace with the addresses and routes that matter for
//! paths. A [`Monitor`] reports these changes:
//!
//! - [`Change::Link`]: a link came up or went down, immediately after the kernel's notification. Link notifications
//!   have a separate socket, so that a flood of routes neither delays nor displaces them.
//! - [`Change::Devices`]: the list of all devices differs. A change arrives in pieces (a link, its addresses, its
//!   routes). The list is read in full after the last piece, so that a lost notification (full socket buffer) leaves no
//!   stale state.
//! - [`Change::Rules`]: routing rules or nexthop objects changed; reported after the list.
//! - [`Change::Advertised`]: options of router advertisements that the kernel leaves to programs, reported after
//!   earlier link events.
//!
//! Order of reports: up and down events of a link alternate in the kernel's order, even if the link has recovered
//! before the first read. A list immediately follows the events that caused it and never contradicts them. Addresses
//! and routes in it may be older; a later list corrects them. A link that was up at the start has no event. If the
//! kernel lost notifications, or if a snapshot shows a change before its notification arrives, the events are derived
//! from the snapshot.
//!
//! The kernel may report a lost carrier late: for a physical device at most once a second (`net/core/link_watch.c`).
//! The monitor does not know a wireless link's point of attachment.
//!
//! Call from a tokio runtime; a current-thread runtime is sufficient.

mod device;
mod notices;
mod reading;
mod router;
mod view;

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use rtnetlink::MulticastGroup;
use segue_ip::LinkEvent;
use tokio::time::Instant;

pub use device::{Device, physical, physical_candidates};
use notices::{Notice, Notices};
use reading::fail;
pub use reading::{MonitorError, snapshot};
pub use router::RouterOptions;
use router::UserOption;
use view::View;

/// Time without a notification before the devices are read, …
const QUIET: Duration = Duration::from_millis(50);
/// … and the maximum delay if notifications never stop.
const PATIENCE: Duration = Duration::from_millis(500);

/// A reported change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link came up or went down. The point of attachment is not given.
    Link(LinkEvent),
    /// All devices, by index. The list differs from the one last reported.
    Devices(Vec<Device>),
    /// Routing rules or nexthop objects have changed, so the same routes may lead elsewhere.
    Rules,
    /// A router advertised these options.
    Advertised(RouterOptions),
}

/// Watches the interfaces of the network namespace in which it was created.
pub struct Monitor {
    links: Notices,
    others: Notices,
    rules: Notices,
    options: Notices,
    view: View,
    /// Events to report.
    events: VecDeque<LinkEvent>,
    /// Options from one datagram, still to report.
    advertised: VecDeque<RouterOptions>,
    /// The view may differ from the list last reported.
    differs: bool,
    /// Rules have changed since the last report.
    ruled: bool,
    last: Vec<Device>,
    due: Option<Due>,
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = Result<Vec<Device>, MonitorError>> + Send>>;

/// When to read the devices.
struct Due {
    /// When the first unread change arrived.
    since: Instant,
    at: Instant,
}

/// Reason for the end of a wait.
enum Woken {
    Links,
    Others,
    Rules,
    Options,
    Due,
    Read(Vec<Device>),
}

impl Monitor {
    /// Starts watching. Reports every change from this call on.
    ///
    /// # Errors
    /// Netlink is unavailable.
    pub async fn new() -> Result<Monitor, MonitorError> {
        let of = |groups: &[MulticastGroup]| Notices::of(groups).map_err(fail("watch interfaces"));
        let links = of(&[MulticastGroup::Link])?;
        let others = of(&[
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ])?;
        let rules =
            of(&[MulticastGroup::Ipv4Rule, MulticastGroup::Ipv6Rule, MulticastGroup::Nexthop])?;
        let options = of(&[MulticastGroup::NdUseropt])?;
        let last = snapshot().await?;
        Ok(Monitor {
            links,
            others,
            rules,
            options,
            view: View::new(last.clone()),
            events: VecDeque::new(),
            advertised: VecDeque::new(),
            differs: false,
            ruled: false,
            last,
            due: None,
            reading: None,
        })
    }

    /// The list last reported.
    #[must_use]
    pub fn current(&self) -> &[Device] {
        &self.last
    }

    /// Waits for the next change. Cancel safe: dropping the future loses no change.
    ///
    /// # Errors
    /// Netlink failed.
    pub async fn changed(&mut self) -> Result<Change, MonitorError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Change::Link(event));
            }
            if let Some(options) = self.advertised.pop_front() {
                return Ok(Change::Advertised(options));
            }
            if std::mem::take(&mut self.differs) && self.view.devices() != self.last {
                self.last = self.view.devices().to_vec();
                return Ok(Change::Devices(self.last.clone()));
            }
            if self.ruled && self.due.is_none() && self.reading.is_none() {
                self.ruled = false;
                return Ok(Change::Rules);
            }
            match self.woken().await? {
                Woken::Links => self.hear()?,
                Woken::Rules => {
                    if self.rules.skip().map_err(fail("watch routing rules"))? {
                        self.ruled = true;
                        self.read_after(QUIET);
                    }
                }
                Woken::Others => {
                    if self.others.skip().map_err(fail("watch interfaces"))? {
                        self.read_after(QUIET);
                    }
                }
                Woken::Options => {
                    // Report link events that preceded this notification first.
                    self.hear()?;
                    let notice =
                        self.options.next().map_err(fail("watch router advertisements"))?;
                    // The router repeats lost advertisements.
                    if let Some(Notice::Messages(messages)) = notice {
                        let options =
                            messages.into_iter().filter_map(|UserOption(options)| options);
                        self.advertised.extend(options);
                    }
                }
                Woken::Due => {
                    self.due = None;
                    self.view.begin();
                    self.reading = Some(Box::pin(snapshot()));
                }
                Woken::Read(devices) => {
                    self.reading = None;
                    // Notifications that arrived during the reading are newer.
                    self.hear()?;
                    self.events.extend(self.view.take(devices));
                    self.differs = true;
                }
            }
        }
    }

    async fn woken(&mut self) -> Result<Woken, MonitorError> {
        let watch = fail("watch interfaces");
        let due = self.due.as_ref().filter(|_| self.reading.is_none()).map(|due| due.at);
        let read = async {
            match &mut self.reading {
                Some(reading) => reading.await,
                None => std::future::pending().await,
            }
        };
        let wait = async {
            match due {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            heard = self.links.wait() => heard.map_err(watch).map(|()| Woken::Links),
            heard = self.others.wait() => heard.map_err(watch).map(|()| Woken::Others),
            heard = self.rules.wait() => heard.map_err(watch).map(|()| Woken::Rules),
            heard = self.options.wait() => heard.map_err(watch).map(|()| Woken::Options),
            devices = read => devices.map(Woken::Read),
            () = wait => Ok(Woken::Due),
        }
    }

    /// Processes all queued link notifications; the socket's capacity bounds the loop.
    fn hear(&mut self) -> Result<(), MonitorError> {
        while let Some(notice) = self.links.next().map_err(fail("watch interfaces"))? {
            let Notice::Messages(messages) = notice else {
                self.read_after(Duration::ZERO);
                continue;
            };
            self.events.extend(messages.iter().filter_map(|message| self.view.hear(message)));
            self.read_after(QUIET);
        }
        self.differs |= !self.events.is_empty();
        Ok(())
    }

    /// Schedules a reading after `quiet` without further changes.
    fn read_after(&mut self, quiet: Duration) {
        let now = Instant::now();
        if self.due.as_ref().is_some_and(|due| due.at <= now) {
            return;
        }
        let since = self.due.as_ref().map_or(now, |due| due.since);
        self.due = Some(Due { since, at: (now + quiet).min(since + PATIENCE) });
    }
}
