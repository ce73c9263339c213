//! The cursors of verbs that walk a queue shard by shard: the number of the shard, then the cursor within it.

use tallystone_model::{Layout, Refusal};

/// A place in the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) number: u16,
    /// Empty: the shard from its beginning.
    pub(super) within: String,
}

impl Cursor {
    /// Parses what a caller sent. Empty: the beginning of the walk.
    pub(super) fn parse(text: &str, field: &'static str, layout: &Layout) -> Result<Cursor, Refusal> {
        if text.is_empty() {
            return Ok(Cursor { number: 0, within: String::new() });
        }
        let invalid = || Refusal::invalid(field, "is not one of this queue");
        let (number, within) = text.split_once('/').ok_or_else(invalid)?;
        let number = number.parse().ok().filter(|number| layout.has(*number)).ok_or_else(invalid)?;
        Ok(Cursor { number, within: within.to_owned() })
    }

    /// The place behind a step that ended so in its shard; `None`: the walk is over.
    pub(super) fn behind(&self, within: String, layout: &Layout) -> Option<Cursor> {
        match within.is_empty() {
            false => Some(Cursor { number: self.number, within }),
            true => layout.numbers().find(|number| *number > self.number).map(|number| Cursor { number, within }),
        }
    }

    /// What a caller gets; empty: the walk is over.
    pub(super) fn shown(cursor: Option<Cursor>) -> String {
        cursor.map_or_else(String::new, |Cursor { number, within }| format!("{number}/{within}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::QueueConfig;

    #[test]
    fn q17_a_cursor_passes_every_shard_once() {
        let layout = Layout::of(&QueueConfig { shards: 3, ..QueueConfig::default() });
        let mut cursor = Cursor::parse("", "page_token", &layout).unwrap();
        let mut shown = Vec::new();
        for within in ["a/b", "", "", ""] {
            let next = cursor.behind(within.to_owned(), &layout);
            shown.push(Cursor::shown(next.clone()));
            if let Some(next) = next {
                assert_eq!(Cursor::parse(&Cursor::shown(Some(next.clone())), "page_token", &layout), Ok(next.clone()));
                cursor = next;
            }
        }
        assert_eq!(shown, ["0/a/b", "1/", "2/", ""]);
        for foreign in ["3/", "x", "-1/", "a/b"] {
            assert!(Cursor::parse(foreign, "page_token", &layout).is_err(), "{foreign}");
        }
    }
}
