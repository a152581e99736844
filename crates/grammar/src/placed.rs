//! Values with their places in a file.

use std::borrow::Cow;
use std::ops::{Deref, Range};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

/// A value with its place, described as the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Spanned<T>(toml::Spanned<T>);

/// A name with its place.
pub type Name = Spanned<String>;

impl<T> Spanned<T> {
    /// The value at this place.
    pub fn new(place: Range<usize>, value: T) -> Spanned<T> {
        Spanned(toml::Spanned::new(place, value))
    }

    /// Its place.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }

    /// The value.
    #[must_use]
    pub fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// The value without its place.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> Deref for Spanned<T> {
    type Target = toml::Spanned<T>;
    fn deref(&self) -> &toml::Spanned<T> {
        &self.0
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
