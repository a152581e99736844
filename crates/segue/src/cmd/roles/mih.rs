//! IEEE 802.21: the function and the link service access point.

use segue_daemon::config::{MihFunctionFile, MihLinkSapFile};
use segue_daemon::mih::{self, Settings};
use segue_daemon::run;
use segue_grammar::Part;

use super::role::{Checks, Daemon, File, PLAIN, PRIVATE_TMP, Role, read};
use crate::cmd::check::summary;
use crate::cmd::control::status::mih as page;
use crate::cmd::control::status::page::typed;

/// A function of IEEE 802.21.
pub(crate) static FUNCTION: Role = Role {
    name: <mih::Daemon<false> as run::Role>::NAME,
    file: Some(File {
        what: "A function of IEEE 802.21",
        title: "a configuration for `segue mih function`",
        own: "peers validity",
        foreign: "",
        keys: MihFunctionFile::described,
        read: |source| {
            read::<mih::Daemon<false>, _>(source, MihFunctionFile::validate, summary::mih_function)
        },
    }),
    daemon: Some(Daemon {
        may: &[NO_TUNNEL, "CapabilityBoundingSet=CAP_NET_ADMIN", PRIVATE_TMP],
        ..DAEMON
    }),
};

/// A link service access point of IEEE 802.21.
pub(crate) static LINK_SAP: Role = Role {
    name: <mih::Daemon<true> as run::Role>::NAME,
    file: Some(File {
        what: "A link service access point of IEEE 802.21",
        title: "a configuration for `segue mih link-sap`",
        own: "[[link]]",
        foreign: "[[node]] [[cell]] .ends duration seed [population]",
        keys: MihLinkSapFile::described,
        read: |source| {
            read::<mih::Daemon<true>, _>(source, MihLinkSapFile::validate, summary::mih_link_sap)
        },
    }),
    daemon: Some(Daemon {
        may: &[
            NO_TUNNEL,
            "CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW",
            "# hostapd answers to a socket there.",
            "ReadWritePaths=/tmp",
        ],
        ..DAEMON
    }),
};

const DAEMON: Daemon =
    Daemon { page: Some(|status, paper| typed::<mih::Words>(status, paper, page::lines)), ..PLAIN };

const NO_TUNNEL: &str = "# It opens no tunnel, so that it needs no more.";

impl Checks for Settings {}
