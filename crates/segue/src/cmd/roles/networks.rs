//! Networks on one machine: test networks and simulations.

use segue_scenario::file::{Scenario, population};
use segue_scenario::sweep;

use super::role::{Content, File, Role};
use crate::cmd::check::summary::{self, Row};

/// A test network. It runs until it is stopped.
pub(super) static LAB: Role = Role {
    name: "lab",
    file: Some(File {
        what: "A test network",
        title: "a test network for `segue lab up`",
        own: "[[node]] [[cell]] .ends",
        foreign: "[[access]] duration seed [population]",
        keys: segue_lab::file::keys,
        read: |(path, text)| {
            let plan = segue_lab::file::parse(text, &path.display().to_string())?;
            Ok(network(summary::lab(&plan)))
        },
    }),
    daemon: None,
};

/// A simulated network or population. It ends by itself and can be repeated.
pub(super) static SCENARIO: Role = Role {
    name: "scenario",
    file: Some(File {
        what: "A simulated network or population",
        title: "a scenario for `segue sim`",
        own: "duration seed [population]",
        foreign: "[[access]]",
        keys: segue_scenario::file::keys,
        read: |(path, text)| {
            if let Some(spec) = population::parse(text, &path.display().to_string(), &[])? {
                return Ok(network(summary::population(&spec)));
            }
            let scenario = Scenario::of_text(path, text, &[])?;
            sweep::check(&scenario)?;
            scenario.check_that_time_passes()?;
            Ok(network(summary::scenario(&scenario)))
        },
    }),
    daemon: None,
};

fn network(rows: Vec<Row>) -> Content {
    Content { rows, common: None, settings: Box::new(()) }
}
