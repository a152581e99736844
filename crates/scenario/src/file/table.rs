//! What a table of scenarios is: a plug-in that is read, and then makes its part of the network step by step.

use segue_grammar::{Mistake, Part, tables};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::builder::Builder;
use super::event::EventKind;

/// One table of a file, read. Every table takes a step before any takes the next.
pub(super) trait Table: Send + Sync {
    /// Makes what others are attached to or name: nodes, links, cells, interfaces. Nodes that have no address by then
    /// are given one.
    fn plan(&self, _builder: &mut Builder<'_>) -> Result<(), Mistake> {
        Ok(())
    }

    /// Makes what decides about routes, and what others need the addresses of. Shortest paths are found after it.
    fn place(&self, _builder: &mut Builder<'_>) -> Result<(), Mistake> {
        Ok(())
    }

    /// Makes what sends or is reached, and checks that it is.
    fn reach(&self, _builder: &mut Builder<'_>) -> Result<(), Mistake> {
        Ok(())
    }
}

/// Tables of a file, read.
pub(super) type Tables = Vec<Box<dyn Table>>;

/// A kind of tables.
pub(super) struct Kind {
    /// Its name in a file.
    pub(super) name: &'static str,
    complete: fn(&mut DeTable<'_>),
    read: fn(Spanned<DeValue<'_>>) -> Result<Tables, Mistake>,
    /// What may happen to it.
    pub(super) events: &'static [EventKind],
}

impl Kind {
    /// Tables of a type.
    pub(super) const fn of<T: Table + Part + 'static>(
        name: &'static str,
        events: &'static [EventKind],
    ) -> Kind {
        let read = |list: Spanned<DeValue<'_>>| {
            let boxed = |table: T| Box::new(table) as Box<dyn Table>;
            Ok(tables::<T>(list)?.into_iter().map(boxed).collect())
        };
        Kind { name, complete: |_| (), read, events }
    }

    /// The same kind, whose tables are completed from themselves before they are read.
    pub(super) const fn completed(self, complete: fn(&mut DeTable<'_>)) -> Kind {
        Kind { complete, ..self }
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
