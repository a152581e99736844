//! What the tables of a file share.

use std::collections::BTreeMap;

use segue_grammar::{Mistake, Node, hint};
use segue_linux::link::check_name;
use toml::Spanned;

/// The nodes of a file, and the devices that they get.
pub(super) struct Places<'a> {
    nodes: Vec<&'a str>,
    devices: BTreeMap<String, Vec<String>>,
}

impl<'a> Places<'a> {
    pub(super) fn of(nodes: &'a [Node]) -> Places<'a> {
        let nodes = nodes.iter().map(|node| node.name.get_ref().as_str()).collect();
        Places { nodes, devices: BTreeMap::new() }
    }

    /// Checks that there is a node with this name, which stands at this place.
    pub(super) fn check<T>(&self, node: &str, place: &Spanned<T>) -> Result<(), Mistake> {
        if self.nodes.contains(&node) {
            return Ok(());
        }
        let message = format!("there is no node {node}{}", hint(node, &self.nodes));
        Err(Mistake::of(place, message))
    }

    /// Takes the name of a device at a node, which stands at this place.
    pub(super) fn take<T>(
        &mut self,
        node: &str,
        device: &str,
        place: &Spanned<T>,
    ) -> Result<(), Mistake> {
        self.check(node, place)?;
        check_name(device).map_err(Mistake::at(place))?;
        let taken = self.devices.entry(node.to_owned()).or_default();
        if taken.iter().any(|other| other == device) {
            let message = format!("{node} has another interface {device}");
            return Err(Mistake::of(place, message));
        }
        taken.push(device.to_owned());
        Ok(())
    }
}

/// A test network has no files of recorded losses.
pub(super) fn unread<T>(_: &str) -> Result<T, String> {
    Err("a trace of losses is for segue sim: write a list".to_owned())
}
