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
        if text.is_empty() || layout.is_plain() {
            return Ok(Cursor { number: 0, within: text.to_owned() });
        }
        let invalid = || Refusal::invalid(field, "is not one of this queue");
        let Some((number, within)) = text.split_once('/') else {
            // Of the only shard, before the number of shards was changed.
            let was_one = layout.current().first > 0;
            return if was_one { Ok(Cursor { number: 0, within: text.to_owned() }) } else { Err(invalid()) };
        };
        let number: u16 = number.parse().map_err(|_| invalid())?;
        // A shard that a change has emptied is removed; the walk goes on behind it.
        let next = layout.numbers().find(|next| *next >= number).ok_or_else(invalid)?;
        let within = if next == number { within } else { "" };
        Ok(Cursor { number: next, within: within.to_owned() })
    }

    /// The place behind a step that ended so in its shard; `None`: the walk is over.
    pub(super) fn behind(&self, within: String, layout: &Layout) -> Option<Cursor> {
        match within.is_empty() {
            false => Some(Cursor { number: self.number, within }),
            true => layout.numbers().find(|number| *number > self.number).map(|number| Cursor { number, within }),
        }
    }

    /// What a caller gets of a queue with this layout; empty: the walk is over.
    pub(super) fn shown(cursor: Option<Cursor>, layout: &Layout) -> String {
        match cursor {
            None => String::new(),
            Some(Cursor { within, .. }) if layout.is_plain() => within,
            Some(Cursor { number, within }) => format!("{number}/{within}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::{QueueConfig, Spread};

    #[test]
    fn q17_a_cursor_passes_every_shard_once() {
        let layout = Layout::of(&QueueConfig { shards: 3, ..QueueConfig::default() }, None);
        let mut cursor = Cursor::parse("", "page_token", &layout).unwrap();
        let mut shown = Vec::new();
        for within in ["a/b", "", "", ""] {
            let next = cursor.behind(within.to_owned(), &layout);
            shown.push(Cursor::shown(next.clone(), &layout));
            if let Some(next) = next {
                assert_eq!(
                    Cursor::parse(&Cursor::shown(Some(next.clone()), &layout), "page_token", &layout),
                    Ok(next.clone())
                );
                cursor = next;
            }
        }
        assert_eq!(shown, ["0/a/b", "1/", "2/", ""]);
        for foreign in ["3/", "x", "-1/", "a/b"] {
            assert!(Cursor::parse(foreign, "page_token", &layout).is_err(), "{foreign}");
        }
    }

    #[test]
    fn q17_a_cursor_of_before_a_change_goes_on_behind_it() {
        let config = |shards| QueueConfig { shards, ..QueueConfig::default() };
        let parse =
            |text, layout| Cursor::parse(text, "page_token", layout).map(|cursor| (cursor.number, cursor.within));
        let plain = Layout::of(&config(1), None);
        assert_eq!(parse("7f", &plain), Ok((0, "7f".to_owned())));
        assert_eq!(Cursor::shown(Some(Cursor { number: 0, within: "7f".to_owned() }), &plain), "7f");
        let to_four = Spread::changed(&config(1), None, 4).unwrap();
        let draining = Layout::of(&config(4), Some(&to_four));
        assert_eq!(parse("7f", &draining), Ok((0, "7f".to_owned())));
        let to_two = Spread::changed(&config(4), Some(&to_four.finished()), 2).unwrap().finished();
        // Shards 1 to 4 are removed.
        let changed = Layout::of(&config(2), Some(&to_two));
        assert_eq!(parse("3/7f", &changed), Ok((5, String::new())));
        assert_eq!(parse("5/7f", &changed), Ok((5, "7f".to_owned())));
        assert!(parse("7/", &changed).is_err());
        let behind = |number| Cursor { number, within: String::new() }.behind(String::new(), &changed);
        assert_eq!([0, 5, 6].map(|number| behind(number).map(|next| next.number)), [Some(5), Some(6), None]);
    }
}
