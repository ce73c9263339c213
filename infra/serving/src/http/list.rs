//! A list of a JSON request, of bounded length.

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Items of one call. An item of one byte would take a hundred in memory.
const ITEMS_MAX: usize = 1_000;

/// Reads a list, for `deserialize_with`: of one with more than 1,000 items, 1,001. So the call sees that they are too many.
pub fn short_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct OfList<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OfList<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while items.len() <= ITEMS_MAX {
                let Some(item) = list.next_element()? else { return Ok(items) };
                items.push(item);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(items)
        }
    }

    deserializer.deserialize_seq(OfList(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Body {
        #[serde(deserialize_with = "short_list")]
        items: Vec<u8>,
        after: u8,
    }

    #[test]
    fn s1_a_list_is_read_as_far_as_a_call_may_have_items() {
        for (count, read) in [(0, 0), (1, 1), (1_000, 1_000), (1_001, 1_001), (1_000_000, 1_001)] {
            let items = vec!["7"; count].join(",");
            let body: Body = serde_json::from_str(&format!(r#"{{"items":[{items}],"after":3}}"#)).unwrap();
            assert_eq!((body.items.len(), body.after), (read, 3), "{count}");
            assert!(serde_json::from_str::<Body>(&format!(r#"{{"items":[{items},],"after":3}}"#)).is_err());
        }
    }
}
