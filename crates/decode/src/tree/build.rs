//! The serialiser that builds a [`Tree`]. Codes carry the names of their values ([`VALUE_NAME`]).

use std::fmt::{self, Display};

use segue_wire::VALUE_NAME;
use serde::ser::{
    self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};

use super::Tree;

impl Tree {
    /// The tree of a value whose fields all fit into one.
    #[must_use]
    pub(crate) fn of(value: &impl Serialize) -> Tree {
        value
            .serialize(Builder)
            .expect("formats have whole numbers, and names of fields are strings")
    }
}

/// Builds a tree from a serialised value.
struct Builder;

/// A value that does not fit into a tree.
#[derive(Debug)]
struct Unfit(String);

impl Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl ser::Error for Unfit {
    fn custom<T: Display>(message: T) -> Unfit {
        Unfit(message.to_string())
    }
}

/// A list or an object under construction, possibly the value of an enum variant.
#[derive(Default)]
struct Parts {
    variant: Option<&'static str>,
    items: Vec<Tree>,
    fields: Vec<(String, Tree)>,
    key: String,
}

impl Parts {
    fn of(variant: &'static str) -> Parts {
        Parts { variant: Some(variant), ..Parts::default() }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        self.items.push(value.serialize(Builder)?);
        Ok(())
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Unfit> {
        self.fields.push((name.to_owned(), value.serialize(Builder)?));
        Ok(())
    }

    fn whole(self, tree: Tree) -> Result<Tree, Unfit> {
        Ok(match self.variant {
            Some(variant) => Tree::object([(variant, tree)]),
            None => tree,
        })
    }

    fn list(mut self) -> Result<Tree, Unfit> {
        let items = std::mem::take(&mut self.items);
        self.whole(Tree::List(items))
    }

    fn object(mut self) -> Result<Tree, Unfit> {
        let fields = std::mem::take(&mut self.fields);
        self.whole(Tree::Object(fields))
    }
}

/// Implements serde's traits that receive a sequence of values.
macro_rules! items {
    ($($part:ident $method:ident,)*) => { $(
        impl $part for Parts {
            type Ok = Tree;
            type Error = Unfit;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
                self.item(value)
            }

            fn end(self) -> Result<Tree, Unfit> {
                self.list()
            }
        }
    )* };
}

items! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

/// Implements serde's traits that receive named fields.
macro_rules! fields {
    ($($part:ident,)*) => { $(
        impl $part for Parts {
            type Ok = Tree;
            type Error = Unfit;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Unfit> {
                self.field(name, value)
            }

            fn end(self) -> Result<Tree, Unfit> {
                self.object()
            }
        }
    )* };
}

fields! { SerializeStruct, SerializeStructVariant, }

impl SerializeMap for Parts {
    type Ok = Tree;
    type Error = Unfit;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unfit> {
        let Tree::Text(key) = key.serialize(Builder)? else {
            return Err(Unfit("a name that is no text".into()));
        };
        self.key = key;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unfit> {
        let name = std::mem::take(&mut self.key);
        self.field(&name, value)
    }

    fn end(self) -> Result<Tree, Unfit> {
        self.object()
    }
}

/// Methods for number types that fit into a wider one.
macro_rules! numbers {
    ($($method:ident $from:ty => $to:ty,)*) => { $(
        fn $method(self, number: $from) -> Result<Tree, Unfit> {
            Ok(<$to>::from(number).into())
        }
    )* };
}

impl Serializer for Builder {
    type Ok = Tree;
    type Error = Unfit;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    numbers! {
        serialize_bool bool => bool,
        serialize_i8 i8 => i64,
        serialize_i16 i16 => i64,
        serialize_i32 i32 => i64,
        serialize_i64 i64 => i64,
        serialize_u8 u8 => u64,
        serialize_u16 u16 => u64,
        serialize_u32 u32 => u64,
        serialize_u64 u64 => u64,
        serialize_char char => String,
        serialize_str &str => String,
    }

    fn serialize_f32(self, _: f32) -> Result<Tree, Unfit> {
        Err(Unfit("a fraction".into()))
    }

    fn serialize_f64(self, _: f64) -> Result<Tree, Unfit> {
        Err(Unfit("a fraction".into()))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Tree, Unfit> {
        Ok(Tree::List(bytes.iter().map(|byte| Tree::from(*byte)).collect()))
    }

    fn serialize_none(self) -> Result<Tree, Unfit> {
        Ok(Tree::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Tree, Unfit> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Tree, Unfit> {
        Ok(Tree::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Tree, Unfit> {
        Ok(Tree::Null)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Tree, Unfit> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Tree, Unfit> {
        Ok(match (value.serialize(self)?, name.strip_prefix(VALUE_NAME)) {
            (Tree::Number(number), name) => Tree::named(number, name),
            (tree, _) => tree,
        })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Tree, Unfit> {
        Ok(Tree::object([(variant, value.serialize(self)?)]))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, Unfit> {
        Ok(Parts::default())
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts, Unfit> {
        Ok(Parts::default())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts, Unfit> {
        Ok(Parts::default())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Unfit> {
        Ok(Parts::of(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts, Unfit> {
        Ok(Parts::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts, Unfit> {
        Ok(Parts::default())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts, Unfit> {
        Ok(Parts::of(variant))
    }
}
