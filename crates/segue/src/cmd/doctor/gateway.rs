//! Checks a Proxy Mobile IPv6 gateway: its interfaces and addresses, and the route to its anchor. Checks the addresses
//! of a local mobility anchor.

use segue_daemon::lacks;
use segue_daemon::pmip::uplink;
use segue_linux::link;
use segue_linux::route::way_from;
use segue_pmip::{LmaConfig, MagConfig};

use super::finding::{Finding, ok, todo, told, unknown};

/// Interfaces and addresses that the file names and this machine does not have.
pub(crate) fn accesses(config: &MagConfig) -> Vec<Finding> {
    match lacks::of_gateway(config) {
        Err(error) => vec![unknown("access", told(error))],
        Ok(lacks) if lacks.is_empty() => {
            let names = config.accesses.iter().map(|access| access.interface.as_str());
            vec![ok("access", names.collect::<Vec<_>>().join(", "))]
        }
        Ok(lacks) => lacks.into_iter().map(|lack| todo("access", lack)).collect(),
    }
}

/// Checks that routes lead to the anchor by an interface that is not an access.
pub(crate) fn anchor(config: &MagConfig) -> Finding {
    if let Err(error) = uplink::check(config.anchors(), &config.accesses) {
        return todo("anchor", told(error));
    }
    let anchor = config.anchor;
    let from = config.accesses.first().map_or(anchor, |access| access.proxy_coa);
    match way_from(from, anchor) {
        Err(error) => unknown("anchor", told(error)),
        Ok(None) => todo("anchor", format!("no route leads to {anchor}: add one")),
        Ok(Some(way)) => {
            let links = link::links().unwrap_or_default();
            let over = links.into_iter().find(|link| link.index == way.interface);
            let over = over.map_or(way.interface.to_string(), |link| link.name);
            ok("anchor", format!("routes lead to {anchor} over {over}"))
        }
    }
}

/// Addresses of a local mobility anchor that the file names and this machine does not have.
pub(crate) fn anchor_addresses(config: &LmaConfig) -> Vec<Finding> {
    match lacks::of_anchor(config) {
        Err(error) => vec![unknown("address", told(error))],
        Ok(lacks) if lacks.is_empty() => vec![ok("address", config.address.to_string())],
        Ok(lacks) => lacks.into_iter().map(|lack| todo("address", lack)).collect(),
    }
}
