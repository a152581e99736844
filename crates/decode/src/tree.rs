//! What serialises, as a tree that keeps the order of its fields.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value of JSON whose objects keep the order in which their fields were written: that of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Nothing, or not known.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A number on the wire.
    Number(u64),
    /// A number below zero.
    Negative(i64),
    /// Anything else.
    Text(String),
    /// In order.
    List(Vec<Tree>),
    /// Names and values in order.
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// The tree of something that has fields of these kinds only.
    #[must_use]
    pub(crate) fn of(value: &impl Serialize) -> Tree {
        let text = serde_json::to_string(value).expect("names of fields are strings");
        serde_json::from_str(&text).expect("formats have whole numbers")
    }

    /// An object.
    #[must_use]
    pub(crate) fn object<const N: usize>(fields: [(&str, Tree); N]) -> Tree {
        Tree::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Adds the fields of an object behind those of another.
    pub(crate) fn append(&mut self, other: Tree) {
        if let (Tree::Object(fields), Tree::Object(more)) = (self, other) {
            fields.extend(more);
        }
    }

    /// Adds a field behind those of an object.
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
            Tree::Number(number) => serializer.serialize_u64(*number),
            Tree::Negative(number) => serializer.serialize_i64(*number),
            Tree::Text(text) => serializer.serialize_str(text),
            Tree::List(items) => serializer.collect_seq(items),
            Tree::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without fractions")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, is_so: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(is_so))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Number(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(u64::try_from(number).map_or(Tree::Negative(number), Tree::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let mut object = Vec::new();
        while let Some(field) = fields.next_entry()? {
            object.push(field);
        }
        Ok(Tree::Object(object))
    }
}
