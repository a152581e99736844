//! Values that files contain as strings.

/// Implements `Deserialize` and `JsonSchema` for a type by parsing a TOML string with `parse`; errors use the file's terms.
/// `value` is the kind of text in one word, such as `address`.
#[macro_export]
macro_rules! from_text {
    ($type:ty, $value:literal, $parse:expr) => {
        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(from)?;
                $parse(&text).map_err(::serde::de::Error::custom)
            }
        }

        impl ::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", "x-value": $value })
            }
        }
    };
}
