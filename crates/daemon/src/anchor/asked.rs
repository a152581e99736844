//! Requests to an anchor over its control socket.

use std::net::SocketAddr;

use anyhow::Context;
use segue_datapath::FlowCursor;
use segue_linux::clock::monotonic;
use segue_text::errors::Told;
use segue_tunnel::End;

use super::Daemon;
use crate::control::{FlowsPage, Response, TunnelAnswer, TunnelRequest, Tunnels};
use crate::locator::Locator;
use crate::status;

fn or_error(result: anyhow::Result<Response<Tunnels>>) -> Response<Tunnels> {
    result.unwrap_or_else(|error| Response::Error(Told(&error).to_string()))
}

impl Daemon {
    pub(super) fn answer(&mut self, request: TunnelRequest) -> Response<Tunnels> {
        match request {
            TunnelRequest::Flows { from, host } => {
                let flows = self.flows(from, host.as_deref());
                or_error(flows.map(|page| Response::Own(TunnelAnswer::Flows(page))))
            }
            TunnelRequest::Handover { .. } | TunnelRequest::Keepalive { .. } => {
                Response::Error("this is an anchor; its hosts decide on paths and handovers".into())
            }
            TunnelRequest::Enroll { name, addresses, valid_s } => {
                or_error(self.enroll(&name, &addresses, valid_s).map(Response::Done))
            }
            TunnelRequest::Unenroll { name } => or_error(self.unenroll(&name).map(Response::Done)),
            TunnelRequest::Enrolments => {
                let all = self.enrolments();
                or_error(all.map(|all| Response::Own(TunnelAnswer::Enrolments(all))))
            }
        }
    }

    fn flows(&mut self, from: u64, host: Option<&str>) -> anyhow::Result<FlowsPage> {
        let owner = host
            .map(|name| {
                let owner = self.core.end.machine.owner(name);
                owner.with_context(|| format!("no host {name:?} is registered"))
            })
            .transpose()?;
        let End { machine, datapath, .. } = &mut *self.core.end;
        let from = FlowCursor(from);
        Ok(status::anchor_flows(machine, datapath.as_mut(), monotonic(), from, owner))
    }

    fn enroll(
        &mut self,
        name: &str,
        addresses: &[Locator],
        valid_s: Option<u64>,
    ) -> anyhow::Result<String> {
        let own = || {
            let all = self.interfaces.iter().map(|device| &device.interface);
            let global = all.filter(|i| i.name != self.settings.tunnel.device);
            let port = self.settings.signal_port;
            let all = global.flat_map(|i| &i.addresses);
            all.map(|a| Locator::Address(SocketAddr::new(*a, port))).collect()
        };
        let addresses: Vec<Locator> = match (addresses, &self.settings.addresses) {
            ([], configured) if !configured.is_empty() => configured.clone(),
            ([], _) => own(),
            (given, _) => given.to_vec(),
        };
        self.invite(name, addresses, valid_s)
    }
}
