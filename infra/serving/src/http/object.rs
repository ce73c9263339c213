//! An object of a JSON request.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A value that a request has as a JSON object. Without it, serde also reads the fields of a struct from a list, by their
/// places: such a request would change its meaning with the order of the fields.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfObject<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(OfObject(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        name: String,
        #[serde(default)]
        number: u8,
    }

    fn read(json: &str) -> Result<Body, String> {
        serde_json::from_str(json).map(|Object(body)| body).map_err(|error| error.to_string())
    }

    #[test]
    fn n2_only_an_object_is_read_as_one() {
        assert_eq!(read(r#"{"number":7,"name":"n"}"#), Ok(Body { name: "n".to_owned(), number: 7 }));
        assert_eq!(read(r#"{"name":"n"}"#), Ok(Body { name: "n".to_owned(), number: 0 }));
        for other in [r#"["n",7]"#, r#"["n"]"#, "[]", "7", "null", r#""n""#] {
            let why = read(other).expect_err(other);
            assert!(why.contains("expected a JSON object"), "{other}: {why}");
        }
        for (bad, why) in [(r#"{"nam":"n"}"#, "unknown field `nam`"), ("{}", "missing field `name`"), ("{", "EOF")] {
            assert!(read(bad).expect_err(bad).contains(why), "{bad}");
        }
    }
}
