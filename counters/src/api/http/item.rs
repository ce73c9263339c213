//! The items of a batch. One that cannot be read is refused alone, as one with a bad value is.

use crate::Refusal;
use crate::api::status::of_item;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::value::RawValue;
use tallystone_serving::http::FaultBody;

/// An item, or why it cannot be read.
pub(crate) struct Item<T>(Result<T, String>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?;
        Ok(Item(serde_json::from_str(json.get()).map_err(|error| error.to_string())))
    }
}

/// The refusals of the items that cannot be read, with their numbers.
pub(super) struct Unreadable(Vec<(usize, Refusal)>);

/// The items of the RPC. In place of an item that cannot be read it gets the default one, whose empty name it refuses: so
/// each other item keeps its number, and no result is missing.
pub(super) fn readable<T, W: Default>(
    items: Vec<Item<T>>,
    into_wire: impl Fn(T) -> Result<W, Refusal>,
) -> (Vec<W>, Unreadable) {
    let mut unreadable = Vec::new();
    let read = |(number, Item(item)): (usize, Item<T>)| {
        item.map_err(|why| Refusal::invalid("", why)).and_then(&into_wire).unwrap_or_else(|refusal| {
            unreadable.push((number, refusal));
            W::default()
        })
    };
    let items = items.into_iter().enumerate().map(read).collect();
    (items, Unreadable(unreadable))
}

impl Unreadable {
    /// The result of each, with its number in the field `list`.
    pub(super) fn results(self, list: &str) -> impl Iterator<Item = (usize, FaultBody)> {
        self.0.into_iter().map(move |(number, refusal)| (number, FaultBody::of_item(&of_item(list, number, &refusal))))
    }
}
