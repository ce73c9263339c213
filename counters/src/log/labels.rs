//! What an add says of itself that is no part of what identifies it (N20).

use crate::refusal::Refusal;
use tallystone_model::limits::LABEL_BYTES_MAX;
use tallystone_model::names::check_text;

/// The source of an add and the key of the item that it counts; either may be absent. Nearly all adds have
/// none, and take a word for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Option<Box<Both>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Both {
    source: Box<str>,
    event_item_key: Box<str>,
}

impl Labels {
    /// Checks and wraps; an empty text is an absent one.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] of `source` or `event_item_key`: it has more than [`LABEL_BYTES_MAX`] bytes, or control characters.
    pub fn parse(source: impl Into<Box<str>>, event_item_key: impl Into<Box<str>>) -> Result<Labels, Refusal> {
        let (source, event_item_key) = (source.into(), event_item_key.into());
        if source.is_empty() && event_item_key.is_empty() {
            return Ok(Labels::default());
        }
        check_text("source", &source, 0, LABEL_BYTES_MAX)?;
        check_text("event_item_key", &event_item_key, 0, LABEL_BYTES_MAX)?;
        Ok(Labels(Some(Box::new(Both { source, event_item_key }))))
    }

    /// Whether both are absent.
    pub fn are_none(&self) -> bool {
        self.0.is_none()
    }

    /// Where the add comes from; empty: absent.
    pub fn source(&self) -> &str {
        self.0.as_deref().map_or("", |both| &both.source)
    }

    /// What the add counts; empty: absent.
    pub fn event_item_key(&self) -> &str {
        self.0.as_deref().map_or("", |both| &both.event_item_key)
    }

    /// The memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_deref().map_or(0, |both| size_of::<Both>() + both.source.len() + both.event_item_key.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n20_labels_are_bounded_and_an_empty_one_is_absent() {
        let labels = Labels::parse("é".repeat(32), "x".repeat(64)).unwrap();
        assert_eq!((labels.source(), labels.event_item_key()), ("é".repeat(32).as_str(), "x".repeat(64).as_str()));
        for (bad, field) in
            [(["x".repeat(65), String::new()], "source"), (["s".into(), "a\nb".into()], "event_item_key")]
        {
            let [source, event_item_key] = bad;
            let refused = Labels::parse(source, event_item_key);
            assert!(matches!(&refused, Err(Refusal::Invalid { field: of, .. }) if *of == field), "{refused:?}");
        }
        let one = Labels::parse("", "k").unwrap();
        assert_eq!((one.source(), one.event_item_key(), one.are_none()), ("", "k", false));
        let none = Labels::parse("", "").unwrap();
        assert_eq!((&none, none.are_none(), none.bytes()), (&Labels::default(), true, 0));
        assert_eq!(size_of::<Labels>(), size_of::<usize>());
    }
}
