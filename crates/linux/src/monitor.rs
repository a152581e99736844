//! A watch on interfaces that come and go.
//!
//! [`snapshot`] lists the devices of the caller's network namespace with the addresses and routes that matter for
//! paths. A [`Monitor`] tells what changes:
//!
//! - A link that comes up or goes down, at once, from the kernel's own notice ([`Change::Link`]). Notices of links have
//!   a socket to themselves, so that a flood of routes neither delays nor displaces them.
//! - The list of all devices, when it differs ([`Change::Devices`]). A change comes in pieces (a link, its addresses, its
//!   routes), and the list is read in full when they have all come, so that a notice that was lost (a full socket buffer)
//!   leaves no wrong picture behind.
//! - That routing rules or nexthop objects have changed ([`Change::Rules`]), after the list.
//! - Options of router advertisements that the kernel leaves to programs ([`Change::Advertised`]), after the events of
//!   links that came before them.
//!
//! The order of what it tells: the events of a link alternate, in the order in which the kernel told them, also where
//! the link was back before anybody looked. A list follows the events that led to it at once, and never shows a link
//! otherwise than they said; addresses and routes in it may be older, and a further list brings them. A link that was up
//! at the start has no event. If the kernel lost notices, or a reading shows first what it is about to tell, the events
//! follow from the reading.
//!
//! The kernel itself may tell of a lost carrier late: of a physical card's once a second at most
//! (`net/core/link_watch.c`). A wireless link's point of attachment is not known here.
//!
//! Call from a tokio runtime; a current-thread one is enough.

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

/// The devices are read in full when nothing has come for this long, …
const QUIET: Duration = Duration::from_millis(50);
/// … but at the latest after this long if changes never stop.
const PATIENCE: Duration = Duration::from_millis(500);

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link has come up or gone down. Its point of attachment is not said.
    Link(LinkEvent),
    /// The devices differ from those last told: all of them, by index.
    Devices(Vec<Device>),
    /// Routing rules or nexthop objects have changed, so that the same routes may lead elsewhere.
    Rules,
    /// A router has advertised these options.
    Advertised(RouterOptions),
}

/// Waits for changes of the interfaces in the network namespace in which it was made.
pub struct Monitor {
    links: Notices,
    others: Notices,
    rules: Notices,
    options: Notices,
    view: View,
    /// Events to be told.
    events: VecDeque<LinkEvent>,
    /// Options of one datagram that are not reported yet.
    advertised: VecDeque<RouterOptions>,
    /// The view may differ from what was last told.
    differs: bool,
    /// Rules have changed, and were not told of.
    ruled: bool,
    last: Vec<Device>,
    due: Option<Due>,
    reading: Option<Reading>,
}

type Reading = Pin<Box<dyn Future<Output = Result<Vec<Device>, MonitorError>> + Send>>;

/// When the devices are to be read.
struct Due {
    /// When the first change came that has not been read.
    since: Instant,
    at: Instant,
}

/// What ended a wait.
enum Woken {
    Links,
    Others,
    Rules,
    Options,
    Due,
    Read(Vec<Device>),
}

impl Monitor {
    /// Starts to watch; tells of every change from here on.
    ///
    /// # Errors
    /// If netlink is unavailable.
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

    /// The list last told.
    #[must_use]
    pub fn current(&self) -> &[Device] {
        &self.last
    }

    /// Waits for the next change. May be dropped at any point without losing one.
    ///
    /// # Errors
    /// If netlink fails.
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
                    // A link that went down and came up again since comes first.
                    self.hear()?;
                    let notice =
                        self.options.next().map_err(fail("watch router advertisements"))?;
                    // Lost ones are repeated by the router.
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
                    // What has come meanwhile is newer.
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

    /// Takes the notices of links that wait, at most what the socket holds.
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

    /// Something has changed: reads when nothing more has come for this long.
    fn read_after(&mut self, quiet: Duration) {
        let now = Instant::now();
        if self.due.as_ref().is_some_and(|due| due.at <= now) {
            return;
        }
        let since = self.due.as_ref().map_or(now, |due| due.since);
        self.due = Some(Due { since, at: (now + quiet).min(since + PATIENCE) });
    }
}
