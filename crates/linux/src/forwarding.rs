//! Installs forwarding state (addresses, routes, rules, proxies, neighbours) in the calling thread's network namespace.

use segue_ip::{Forward, Forwarding};

use crate::error::{LinuxError, Result};
use crate::link::{is_gone, put_address, take_address};
use crate::neighbour::{put_known, put_proxy, take_known, take_proxy};
use crate::route::{add_missing_rule, delete_route, delete_rule, replace_route};

/// This machine's kernel, as the executor of the forwarding that protocols request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl Forwarding for Kernel {
    type Error = LinuxError;

    /// Installs this part. Requires `CAP_NET_ADMIN`.
    fn put(&mut self, part: &Forward) -> Result<()> {
        match part {
            Forward::Address { interface, prefix } => {
                put_address(*interface, *prefix).map_err(|e| {
                    LinuxError::refused_at(format!("add address {prefix}"), prefix.addr, e)
                })
            }
            Forward::Route(route) => replace_route(route),
            Forward::Rule(rule) => add_missing_rule(rule).map(drop),
            Forward::Proxy { interface, address } => put_proxy(*interface, *address),
            Forward::Neighbour { interface, address, mac } => put_known(*interface, *address, *mac),
            Forward::Tunnel(_) | Forward::Source(_) | Forward::Bind(_) => Err(of_the_relay()),
        }
    }

    fn take_back(&mut self, part: &Forward) -> Result<()> {
        let taken = match part {
            Forward::Address { interface, prefix } => take_address(*interface, *prefix)
                .map_err(|e| LinuxError::refused(format!("delete address {prefix}"), e)),
            Forward::Route(route) => delete_route(route),
            Forward::Rule(rule) => delete_rule(rule),
            Forward::Proxy { interface, address } => take_proxy(*interface, *address),
            Forward::Neighbour { interface, address, mac } => {
                take_known(*interface, *address, *mac)
            }
            Forward::Tunnel(_) | Forward::Source(_) | Forward::Bind(_) => Err(of_the_relay()),
        };
        match taken {
            Err(error) if is_gone(&error) => Ok(()),
            taken => taken,
        }
    }
}

/// The error for parts that only the programs of a packet path can carry out.
fn of_the_relay() -> LinuxError {
    LinuxError::refused("carry a tunnel", std::io::Error::from(std::io::ErrorKind::Unsupported))
}
