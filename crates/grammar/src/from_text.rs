//! Values written as text in files.

/// Reads a value from a TOML string by `parse`, with its error in the file's terms.
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
