//! Values that files contain as strings.

/// Implements `Deserialize` for a type by parsing a TOML string with `parse`; errors use the file's terms.
#[macro_export]
macro_rules! from_text {
    ($type:ty, $parse:expr) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(from)?;
                $parse(&text).map_err(::serde::de::Error::custom)
            }
        }
    };
}
