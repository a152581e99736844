//! Requests to a host over its control socket.

use anyhow::{Context, bail};
use segue_datapath::FlowCursor;
use segue_linux::clock::monotonic;
use segue_steering::Class;
use segue_tunnel::{End, HostInput};
use segue_wire::FlowKey;

use super::Daemon;
use crate::control::{Response, TunnelAnswer, TunnelRequest, Tunnels};
use crate::run::Role;
use crate::status;

impl Daemon {
    pub(super) fn answer(&mut self, request: TunnelRequest) -> anyhow::Result<Response<Tunnels>> {
        Ok(match request {
            TunnelRequest::Flows { host: Some(_), .. } => {
                Response::Error("this is a host; all its flows are its own".into())
            }
            TunnelRequest::Flows { from, host: None } => {
                let End { machine, datapath, .. } = &mut *self.core.end;
                let (now, from) = (monotonic(), FlowCursor(from));
                let page = status::host_flows(machine, datapath.as_mut(), now, from);
                Response::Own(TunnelAnswer::Flows(page))
            }
            TunnelRequest::Handover { flow, class, to } => {
                match self.handover(flow.as_deref(), class.as_deref(), to) {
                    Ok(input) => Response::Done(self.order(input)?),
                    Err(error) => Response::Error(error.to_string()),
                }
            }
            TunnelRequest::Keepalive { path, on } => match self.check_path(&path) {
                Ok(()) => {
                    self.feed(HostInput::Keepalive { path: path.clone(), on })?;
                    Response::Done(format!("{path}: keepalive {}", if on { "on" } else { "off" }))
                }
                Err(error) => Response::Error(error.to_string()),
            },
            TunnelRequest::Enroll { .. }
            | TunnelRequest::Unenroll { .. }
            | TunnelRequest::Enrolments => {
                Response::Error("this is a host; hosts are enrolled at the anchor".into())
            }
        })
    }

    fn check_path(&self, name: &str) -> anyhow::Result<()> {
        if self.core.end.machine.path_named(name).is_some() {
            return Ok(());
        }
        let names: Vec<&str> = self.core.end.machine.paths().map(|(_, path)| path.name()).collect();
        bail!("there is no path {name:?}; the paths are {}", names.join(", "));
    }

    fn handover(
        &self,
        flow: Option<&str>,
        class: Option<&str>,
        to: Option<String>,
    ) -> anyhow::Result<HostInput> {
        if let Some(name) = &to {
            self.check_path(name)?;
        }
        let class = class
            .map(|name| {
                Class::from_name(name)
                    .with_context(|| format!("{name:?} is no class of flows; see `segue flows`"))
            })
            .transpose()?;
        let flow = flow
            .map(|text| {
                let mut known = self.core.end.machine.flows().map(|(key, _)| *key);
                known
                    .find(|key| key.to_string() == text)
                    .with_context(|| format!("there is no flow {text:?}; see `segue flows`"))
            })
            .transpose()?;
        Ok(HostInput::Handover { flow, class, to })
    }

    /// Carries out an order and reports the result.
    fn order(&mut self, order: HostInput) -> anyhow::Result<String> {
        let HostInput::Handover { flow, class, to } = &order else { return Ok(String::new()) };
        let (key, to) = (*flow, to.clone());
        let stood = match key {
            Some(key) => self.core.end.machine.flow(&key).is_some_and(|flow| flow.pinned.is_some()),
            None => {
                let concerns = |each: Class| class.is_none_or(|class| class == each);
                let flows = || self.core.end.machine.flows().map(|(_, flow)| flow);
                self.core.end.machine.orders().any(|(class, _)| concerns(class))
                    || flows().any(|flow| flow.pinned.is_some() && concerns(flow.class))
            }
        };
        let before: Vec<(FlowKey, u8)> =
            self.core.end.machine.flows().map(|(key, flow)| (*key, flow.path)).collect();
        self.feed(order)?;
        let is_elsewhere = |(key, path): &&(FlowKey, u8)| {
            self.core.end.machine.flow(key).is_some_and(|flow| flow.path != *path)
        };
        let moved = match before.iter().filter(is_elsewhere).count() {
            0 => "no flow had to move".into(),
            1 => "1 flow moved".into(),
            n => format!("{n} flows moved"),
        };
        let Some(to) = to else {
            return Ok(if stood {
                format!("the order has ended; {moved}")
            } else {
                "no order stood".into()
            });
        };
        let is_up =
            self.core.end.machine.paths().any(|(_, path)| path.name() == to && path.is_up());
        Ok(if is_up {
            format!("bound to {to}; {moved}")
        } else {
            format!("{to} is down: the order stands until it is up; {moved}")
        })
    }
}
