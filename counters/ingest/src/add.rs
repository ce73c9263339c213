//! The value of a record: the JSON object of one add, as the HTTP API takes it, without a token and without bounds.

use crate::route::Dead;
use serde::Deserialize;
use tallystone_model::Refusal;
use tallystone_model::limits::{COUNTER_BYTES_MAX, LABEL_BYTES_MAX, NAMESPACE_BYTES_MAX};
use tallystone_model::names::check_text;
use tallystone_serving::http::Int64;

/// A longer value is no add: the names in it are far shorter.
pub(crate) const VALUE_BYTES_MAX: usize = 64 * 1024;
/// What an add takes in a call at most: its texts, and less than 128 bytes for its token, its numbers and the framing.
pub(crate) const ADD_BYTES_MAX: usize = COUNTER_BYTES_MAX + 2 * LABEL_BYTES_MAX + 128;

/// What a record adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Add {
    pub(crate) namespace: String,
    pub(crate) counter: String,
    pub(crate) delta: i64,
    /// Empty: it has none (N20).
    pub(crate) source: String,
    pub(crate) event_item_key: String,
}

/// The object. Bounds and tokens are refused as unknown fields: a token is the record's place, and an add with a bound that is
/// refused now may count later.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    namespace: Option<String>,
    #[serde(alias = "counter_name")]
    counter: String,
    delta: Int64,
    #[serde(default)]
    source: String,
    #[serde(default)]
    event_item_key: String,
}

impl Add {
    /// Reads a value; `namespace` is that of records that name none.
    ///
    /// # Errors
    /// Why the value is no add, or one that the counters would refuse.
    pub(crate) fn read(value: Option<&[u8]>, namespace: Option<&str>) -> Result<Add, (Dead, String)> {
        let add = Add::parse(value, namespace).map_err(|why| (Dead::Malformed, why))?;
        add.check().map_err(|refusal| (Dead::Invalid, refusal.to_string()))?;
        Ok(add)
    }

    fn parse(value: Option<&[u8]>, namespace: Option<&str>) -> Result<Add, String> {
        let value = value.ok_or("the record has no value")?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("the value has {} bytes; at most {VALUE_BYTES_MAX} are read", value.len()));
        }
        let Body { namespace: named, counter, delta: Int64(delta), source, event_item_key } =
            serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let namespace = named.or_else(|| namespace.map(str::to_owned));
        let namespace = namespace.ok_or("the record names no namespace, and none is configured")?;
        Ok(Add { namespace, counter, delta, source, event_item_key })
    }

    /// Checks the texts as the counters do, which read calls only up to a size, and refuse a larger one as a whole. Which characters a namespace may have is left to them: one call finds it out.
    fn check(&self) -> Result<(), Refusal> {
        check_text("namespace", &self.namespace, 1, NAMESPACE_BYTES_MAX)?;
        check_text("counter", &self.counter, 1, COUNTER_BYTES_MAX)?;
        check_text("source", &self.source, 0, LABEL_BYTES_MAX)?;
        check_text("event_item_key", &self.event_item_key, 0, LABEL_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n17_a_value_is_an_add_of_the_http_api() {
        let labeled = |namespace: &str, delta, [source, event_item_key]: [&str; 2]| {
            let [namespace, counter, source, event_item_key] =
                [namespace, "c", source, event_item_key].map(str::to_owned);
            Ok(Add { namespace, counter, delta, source, event_item_key })
        };
        let add = |namespace: &str, delta| labeled(namespace, delta, ["", ""]);
        let read = |text: &str| Add::read(Some(text.as_bytes()), Some("default"));
        assert_eq!(read(r#"{"counter":"c","delta":5}"#), add("default", 5));
        assert_eq!(read(r#"{"namespace":"n","counter_name":"c","delta":"-9223372036854775808"}"#), add("n", i64::MIN));
        let with_labels = read(r#"{"counter":"c","delta":5,"source":"s","event_item_key":"k"}"#);
        assert_eq!(with_labels, labeled("default", 5, ["s", "k"]));
        let (dead, why) = Add::read(Some(br#"{"counter":"c","delta":5}"#), None).unwrap_err();
        assert!(dead == Dead::Malformed && why.contains("names no namespace"), "{dead:?}: {why}");
        assert!(Add::read(None, Some("default")).is_err());
        for (bad, why) in [
            ("", "EOF"),
            ("5", "invalid type"),
            (r#"{"counter":"c"}"#, "missing field `delta`"),
            (r#"{"counter":"c","delta":1.5}"#, "64-bit integer"),
            (r#"{"counter":"c","delta":9223372036854775808}"#, "does not fit"),
            (r#"{"counter":"c","delta":1,"max":5}"#, "unknown field `max`"),
            (r#"{"counter":"c","delta":1,"token":{}}"#, "unknown field `token`"),
            (r#"{"counter":"c","delta":1} x"#, "trailing"),
        ] {
            let (dead, error) = read(bad).unwrap_err();
            assert!(dead == Dead::Malformed && error.contains(why), "{bad}: {dead:?}: {error}");
        }
        let long = format!(r#"{{"counter":"{}","delta":1}}"#, "c".repeat(VALUE_BYTES_MAX));
        let (dead, error) = read(&long).unwrap_err();
        assert!(dead == Dead::Malformed && error.contains("bytes"), "{dead:?}: {error}");
    }

    #[test]
    fn n17_an_add_has_no_text_that_the_counters_refuse() {
        let texts = [("namespace", 1, 64), ("counter", 1, 128), ("source", 0, 64), ("event_item_key", 0, 64)];
        for (field, least, most) in texts {
            let with = |text: &str| {
                let mut object = serde_json::json!({ "counter": "c", "delta": 1 });
                object[field] = text.into();
                Add::read(Some(object.to_string().as_bytes()), Some("n"))
            };
            for good in [least, most] {
                assert!(with(&"x".repeat(good)).is_ok(), "{field} of {good} bytes");
            }
            let too_long = "x".repeat(most + 1);
            let bad = [too_long.as_str(), "a\nb"].into_iter().chain((least > 0).then_some(""));
            for bad in bad {
                let (dead, why) = with(bad).unwrap_err();
                assert!(dead == Dead::Invalid && why.starts_with(field), "{field} {bad:?}: {dead:?}: {why}");
            }
        }
    }
}
