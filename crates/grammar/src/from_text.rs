//! Types with a form of their own in files.

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

        $crate::described!($type, { "type": "string", "x-value": $value });
    };
}

/// Implements `JsonSchema` for a type by a schema that stands wherever the type does. Parameters of the type come first.
#[macro_export]
macro_rules! described {
    ($(@[$($params:tt)*])? $type:ty, { $($schema:tt)* }) => {
        $crate::described!($(@[$($params)*])? $type = ::schemars::json_schema!({ $($schema)* }));
    };
    ($(@[$($params:tt)*])? $type:ty = $schema:expr) => {
        impl $(<$($params)*>)? ::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $schema
            }
        }
    };
}
