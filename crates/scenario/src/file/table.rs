//! The tables of a scenario as plug-ins: each kind is read, and then builds its part of the network step by step.

use segue_grammar::schema::{self, Key};
use segue_grammar::{Mistake, Part, tables};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::builder::Builder;
use super::event::EventKind;

/// One table of a file. All tables complete a step before any of them starts the next.
pub(super) trait Table: Send + Sync {
    /// Creates objects that others attach to or refer to: nodes, links, cells, interfaces. After this step, nodes
    /// without an address are assigned one.
    fn plan(&self, _builder: &mut Builder<'_>) -> Result<(), Mistake> {
        Ok(())
    }

    /// Creates objects that affect routes, or whose addresses others require. After this step, shortest paths are
    /// computed.
    fn place(&self, _builder: &mut Builder<'_>) -> Result<(), Mistake> {
        Ok(())
    }

    /// Creates objects that send or receive, and checks that they can reach each other.
    fn reach(&self, _builder: &mut Builder<'_>) -> Result<(), Mistake> {
        Ok(())
    }
}

/// The tables of a file.
pub(super) type Tables = Vec<Box<dyn Table>>;

/// A kind of table.
pub(super) struct Kind {
    /// Its name in the file.
    pub(super) name: &'static str,
    complete: fn(&mut DeTable<'_>),
    read: fn(Spanned<DeValue<'_>>) -> Result<Tables, Mistake>,
    /// Its keys.
    pub(super) described: fn() -> Vec<Key>,
    /// Events that apply to it.
    pub(super) events: &'static [EventKind],
}

impl Kind {
    /// The kind of the tables that type `T` describes.
    pub(super) const fn of<T: Table + Part + 'static>(
        name: &'static str,
        events: &'static [EventKind],
    ) -> Kind {
        let read = |list: Spanned<DeValue<'_>>| {
            let boxed = |table: T| Box::new(table) as Box<dyn Table>;
            Ok(tables::<T>(list)?.into_iter().map(boxed).collect())
        };
        Kind { name, complete: |_| (), read, described: T::described, events }
    }

    /// The same kind, with sub-tables that `complete` completes before a table is read.
    pub(super) const fn completed(self, complete: fn(&mut DeTable<'_>)) -> Kind {
        Kind { complete, ..self }
    }

    /// Its table in the documentation.
    pub(super) fn table(&self) -> schema::Table {
        let heading = format!("`[[{}]]`", self.name);
        schema::Table { name: self.name, heading, keys: (self.described)(), others: Vec::new() }
    }

    /// Reads all tables of this kind.
    pub(super) fn read(&self, mut list: Spanned<DeValue<'_>>) -> Result<Tables, Mistake> {
        if let DeValue::Array(list) = list.get_mut() {
            for value in list.iter_mut() {
                if let DeValue::Table(table) = value.get_mut() {
                    (self.complete)(table);
                }
            }
        }
        (self.read)(list)
    }
}
