//! Configuration files: the operator's keys, which one validation turns into a daemon's settings. No file is needed;
//! every key has a default.

mod anchor;
mod groups;
mod host;
mod mih;
mod pmip;
mod radius;
mod values;

use segue_grammar::schema::Table;
use segue_grammar::{
    KeepaliveKeys, LmaPolicyKeys, MagPolicyKeys, PathKeys, SteeringKeys, WorthKeys,
};

pub use anchor::AnchorFile;
pub use groups::{InterfaceName, default_state, instance_name};
pub use host::HostFile;
pub use mih::{MihFunctionFile, MihLinkSapFile};
pub use pmip::{LmaFile, MagFile};
pub use radius::RadiusKeys;

use groups::{DaemonKeys, DatapathKeys, StateKeys, TunnelKeys};
use pmip::RelayKeys;

/// The tables of keys in the documentation.
#[must_use]
pub fn tables() -> Vec<Table> {
    let daemon = Table::of::<DaemonKeys>("daemon", "key").and::<StateKeys>();
    vec![
        daemon.and::<DatapathKeys>().and::<TunnelKeys>(),
        Table::of::<host::HostKeys>("host", "key"),
        Table::of::<KeepaliveKeys>("keepalive", "key"),
        Table::of::<PathKeys>("path", "key"),
        Table::of::<SteeringKeys>("steering", "key"),
        Table::of::<anchor::AnchorKeys>("anchor", "key"),
        Table::of::<pmip::LmaKeys>("pmip-lma", "key").and::<LmaPolicyKeys>().and::<RelayKeys>(),
        Table::of::<WorthKeys>("worth", "key"),
        Table::of::<pmip::MagKeys>("pmip-mag", "key").and::<MagPolicyKeys>().and::<RelayKeys>(),
        Table::of::<pmip::AccessKeys>("access", "key"),
        Table::of::<pmip::NodeKeys>("node", "key"),
        Table::of::<RadiusKeys>("radius", "key"),
        Table::of::<radius::RadiusServerKeys>("radius.server", "key"),
        Table::of::<mih::FunctionKeys>("mih-function", "key"),
        Table::of::<mih::MihKeys>("mih", "key"),
        Table::of::<mih::LinkKeys>("link", "key"),
    ]
}

#[cfg(test)]
mod tests;
