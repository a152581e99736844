//! Reads tables as structs. Several structs may share the keys of one table, as with serde's `flatten`; but values keep
//! their places in the file, and one table may be completed from another before it is read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny, Visitor};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::schema::{self, Key};
use crate::source::{Mistake, hint};

/// A table's values with their places.
pub type Values<'a> = Spanned<DeTable<'a>>;

/// A table, or a part of its keys.
pub trait Part: Sized {
    /// The keys.
    fn keys() -> Vec<&'static str>;

    /// The keys with their schemas.
    fn described() -> Vec<Key>;

    /// Removes these keys from a table and reads them.
    ///
    /// # Errors
    /// A value has the wrong type, or a key is missing.
    fn take(table: &mut Values<'_>) -> Result<Self, Mistake>;
}

impl<T: DeserializeOwned + JsonSchema> Part for T {
    fn keys() -> Vec<&'static str> {
        let mut keys: &[&str] = &[];
        // Ends as soon as the struct has named its fields.
        let _ = T::deserialize(Fields(&mut keys));
        keys.to_vec()
    }

    fn described() -> Vec<Key> {
        schema::keys::<T>(&T::keys())
    }

    fn take(table: &mut Values<'_>) -> Result<T, Mistake> {
        let own = pick(table.get_mut(), &T::keys());
        value(Spanned::new(table.span(), DeValue::Table(own)))
    }
}

/// Makes a struct a table whose keys are those of its parts, as with serde's `flatten`. Values keep their places, and
/// unknown keys are refused.
#[macro_export]
macro_rules! parts {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl $crate::Part for $name {
            fn keys() -> Vec<&'static str> {
                [$(<$type as $crate::Part>::keys()),*].concat()
            }
            fn described() -> Vec<$crate::schema::Key> {
                [$(<$type as $crate::Part>::described()),*].concat()
            }
            fn take(table: &mut $crate::Values<'_>) -> Result<$name, $crate::Mistake> {
                Ok($name { $($field: $crate::Part::take(table)?,)* })
            }
        }
    };
}

/// Defines the keys of a file, whose parts are public, as with [`parts`].
#[macro_export]
macro_rules! joined {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, ::serde::Serialize)]
        pub struct $name {
            $(
                #[doc = concat!("Its `", stringify!($field), "` keys.")]
                #[serde(flatten)]
                pub $field: $type,
            )*
        }

        $crate::parts!($name { $($field: $type),* });
    };
}

/// Reads a value.
///
/// # Errors
/// The value has the wrong type.
pub fn value<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, Mistake> {
    T::deserialize(ValueDeserializer::from(value)).map_err(|error| Mistake::read(&error))
}

/// Reads a list of tables.
///
/// # Errors
/// A value has the wrong type, or a key is missing or unknown.
pub fn tables<T: Part>(list: Spanned<DeValue<'_>>) -> Result<Vec<T>, Mistake> {
    // Reports anything other than a list of tables.
    value::<Vec<BTreeMap<String, IgnoredAny>>>(list.clone())?;
    let DeValue::Array(list) = list.into_inner() else { return Ok(Vec::new()) };
    let tables = list.into_iter().filter_map(|value| match (value.span(), value.into_inner()) {
        (span, DeValue::Table(table)) => Some(Spanned::new(span, table)),
        _ => None,
    });
    let keys = T::keys();
    let read = |mut table: Spanned<DeTable<'_>>| {
        known(table.get_ref(), &keys)?;
        T::take(&mut table)
    };
    tables.map(read).collect()
}

/// Refuses keys other than these.
///
/// # Errors
/// The first unknown key.
pub fn known(table: &DeTable<'_>, keys: &[&str]) -> Result<(), Mistake> {
    match table.keys().find(|key| !keys.contains(&key.get_ref().as_ref())) {
        Some(key) => Err(Mistake::of(key, format!("unknown key{}", hint(key.get_ref(), keys)))),
        None => Ok(()),
    }
}

/// Moves some keys of a table to a new one.
pub(crate) fn pick<'a>(table: &mut DeTable<'a>, keys: &[&str]) -> DeTable<'a> {
    keys.iter().filter_map(|key| table.remove_entry(*key)).collect()
}

/// Completes a table with the missing keys of another.
pub(crate) fn inherit<'a>(table: &mut DeTable<'a>, other: &DeTable<'a>) {
    for (key, value) in other {
        if !table.contains_key(key) {
            table.insert(key.clone(), value.clone());
        }
    }
}

/// A deserializer that records the names of a struct's fields and reads nothing.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = NoValue;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        Err(NoValue::custom("only its fields were asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("it is no struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
