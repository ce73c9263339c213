//! The value of a record: the JSON object of one add, as the HTTP API takes it, without a token and without bounds.

use serde::Deserialize;
use tallystone_serving::http::Int64;

/// A longer value is no add: the names in it are far shorter.
pub(crate) const VALUE_BYTES_MAX: usize = 64 * 1024;

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
    /// Why the value is no add.
    pub(crate) fn read(value: Option<&[u8]>, namespace: Option<&str>) -> Result<Add, String> {
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
        assert!(Add::read(Some(br#"{"counter":"c","delta":5}"#), None).unwrap_err().contains("names no namespace"));
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
            let error = read(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        let long = format!(r#"{{"counter":"{}","delta":1}}"#, "c".repeat(VALUE_BYTES_MAX));
        assert!(read(&long).unwrap_err().contains("bytes"));
    }
}
