//! A tree of serialised values that keeps the order of fields.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

mod build;

/// A JSON value whose objects keep their fields in the order of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Absent or unknown.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number on the wire.
    Number(u64),
    /// A number on the wire and its name. In JSON, the name becomes a second field with the suffix `_name`.
    Named(u64, String),
    /// A negative number.
    Negative(i64),
    /// Anything else.
    Text(String),
    /// An ordered list.
    List(Vec<Tree>),
    /// Names and values, in order.
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// A number, with its name if it has one.
    pub(crate) fn named(number: u64, name: Option<&str>) -> Tree {
        name.map_or(Tree::Number(number), |name| Tree::Named(number, name.to_owned()))
    }

    /// An object with these fields.
    #[must_use]
    pub(crate) fn object<const N: usize>(fields: [(&str, Tree); N]) -> Tree {
        Tree::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Appends the fields of another object.
    pub(crate) fn append(&mut self, other: Tree) {
        if let (Tree::Object(fields), Tree::Object(more)) = (self, other) {
            fields.extend(more);
        }
    }

    /// Appends a field.
    pub(crate) fn push(&mut self, name: &str, value: impl Into<Tree>) {
        if let Tree::Object(fields) = self {
            fields.push((name.to_owned(), value.into()));
        }
    }
}
impl From<u64> for Tree {
    fn from(number: u64) -> Tree {
        Tree::Number(number)
    }
}

impl From<i64> for Tree {
    fn from(number: i64) -> Tree {
        u64::try_from(number).map_or(Tree::Negative(number), Tree::Number)
    }
}

impl From<u32> for Tree {
    fn from(number: u32) -> Tree {
        Tree::Number(number.into())
    }
}

impl From<u16> for Tree {
    fn from(number: u16) -> Tree {
        Tree::Number(number.into())
    }
}

impl From<u8> for Tree {
    fn from(number: u8) -> Tree {
        Tree::Number(number.into())
    }
}

impl From<bool> for Tree {
    fn from(is_so: bool) -> Tree {
        Tree::Bool(is_so)
    }
}

impl From<String> for Tree {
    fn from(text: String) -> Tree {
        Tree::Text(text)
    }
}

impl From<&str> for Tree {
    fn from(text: &str) -> Tree {
        Tree::Text(text.to_owned())
    }
}

impl<T: Into<Tree>> From<Option<T>> for Tree {
    fn from(value: Option<T>) -> Tree {
        value.map_or(Tree::Null, T::into)
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Null => serializer.serialize_unit(),
            Tree::Bool(is_so) => serializer.serialize_bool(*is_so),
            Tree::Number(number) | Tree::Named(number, _) => serializer.serialize_u64(*number),
            Tree::Negative(number) => serializer.serialize_i64(*number),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::List(items) => serializer.collect_seq(items),
            Tree::Object(fields) => {
                let mut map = serializer.serialize_map(None)?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                    if let Tree::Named(_, of_value) = value {
                        map.serialize_entry(&format!("{name}_name"), of_value)?;
                    }
                }
                map.end()
            }
        }
    }
}
