//! System settings for attachments: addresses and default routes of radios, and routes of routers to them.

use anyhow::Result;
use segue_ip::{Prefix, Route};
use segue_linux::link;

use super::state::{Air, Cell, Radio, Setting, found};

/// Metric of a default route over a radio, to which the radio's number is added. All other routes of a node take
/// precedence.
const METRIC: u32 = 10_000;

impl Air {
    /// Installs the settings that a radio's attachments require, and removes those that they no longer require. Ignores
    /// settings that others have removed. Retries failed settings the next time; returns the first error.
    pub(super) fn settle(&mut self, name: &str) -> Result<()> {
        let radio = self.radio(name)?;
        let wanted = self.wanted(radio);
        for setting in radio.settings.iter().rev().filter(|had| !wanted.contains(had)) {
            let _ = self.take_back(radio, setting)?;
        }
        let (mut there, mut refused) = (Vec::new(), Ok(()));
        for setting in wanted {
            let put = match radio.settings.contains(&setting) {
                true => Ok(()),
                false => self.put(radio, &setting).and_then(|put| Ok(put?)),
            };
            match put {
                Ok(()) => there.push(setting),
                Err(error) => refused = refused.and(Err(error)),
            }
        }
        found(&mut self.radios, name)?.settings = there;
        refused
    }

    /// In the order of installation: a gateway must be reachable before a route uses it.
    fn wanted(&self, radio: &Radio) -> Vec<Setting> {
        let mut wanted = Vec::new();
        let given = |cell: &str| radio.met.get(cell).and_then(|met| met.address);
        let cells = radio.attached.iter().map(|(cell, _)| cell.as_str());
        wanted.extend(cells.clone().filter_map(given).map(Setting::Address));
        if let Some((name, cell)) = cells.clone().next_back().and_then(|name| self.known(name)) {
            let own: Vec<Prefix> = radio.fixed.iter().copied().chain(given(name)).collect();
            wanted.extend(routes_out(radio, cell, &own).into_iter().map(Setting::Route));
        }
        // If a router has several of the cells, the newest leads to an address that the radio has in all of them.
        let mut reached: Vec<(&str, Prefix)> = Vec::new();
        for (name, cell) in cells.rev().filter_map(|name| self.known(name)) {
            for address in radio.fixed.iter().copied().chain(given(name)) {
                let host = Prefix::host(address.addr);
                let way = (cell.port.node.as_str(), host);
                if !reached.contains(&way) {
                    reached.push(way);
                    wanted.push(Setting::Way(name.to_owned(), Route::on(host, cell.port.index)));
                }
            }
        }
        wanted
    }

    fn known<'a>(&self, name: &'a str) -> Option<(&'a str, &Cell)> {
        self.cells.get(name).map(|cell| (name, cell))
    }

    fn put(&self, radio: &Radio, setting: &Setting) -> Result<segue_linux::error::Result<()>> {
        let port = &radio.port;
        Ok(match setting {
            Setting::Address(address) => {
                port.netns.run(|| link::add_address(&port.device, *address))?
            }
            Setting::Route(route) => port.netns.run(|| link::replace_route(route))?,
            Setting::Way(cell, route) => {
                self.cell(cell)?.port.netns.run(|| link::replace_route(route))?
            }
        })
    }

    fn take_back(
        &self,
        radio: &Radio,
        setting: &Setting,
    ) -> Result<segue_linux::error::Result<()>> {
        let port = &radio.port;
        Ok(match setting {
            Setting::Address(address) => {
                port.netns.run(|| link::delete_address(&port.device, *address))?
            }
            Setting::Route(route) => port.netns.run(|| link::delete_route(route))?,
            Setting::Way(cell, route) => {
                self.cell(cell)?.port.netns.run(|| link::delete_route(route))?
            }
        })
    }
}

/// Routes of a radio's node for these addresses in a cell.
fn routes_out(radio: &Radio, cell: &Cell, own: &[Prefix]) -> Vec<Route> {
    let family = |gateway: &std::net::IpAddr| {
        own.iter().any(|address| address.addr.is_ipv6() == gateway.is_ipv6())
    };
    let Some(gateway) = cell.gateway.filter(family) else { return Vec::new() };
    let index = radio.port.index;
    let default = Route::via(Prefix::default_of(gateway.is_ipv6()), gateway).index(index);
    let default = default.metric(METRIC + radio.number);
    let near = own.iter().any(|address| address.contains(gateway));
    let beside = (!near).then(|| Route::on(Prefix::host(gateway), index));
    beside.into_iter().chain([default]).collect()
}
