//! Priority classes (Q28): a queue names classes with offsets, and a message of a class gets the store's time plus the
//! offset of its class as its deadline. (Timestone's PriorityClass.)

use crate::limits::{METADATA_KEY_BYTES_MAX, PRIORITY_CLASS_BYTES_MAX, PRIORITY_CLASSES_MAX, PRIORITY_OFFSET_MS_MAX};
use crate::message::NewMessage;
use crate::names::check_text;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The priority classes of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PriorityClasses {
    /// The offset of each class, in ms; negative: before everything that is enqueued now without an offset.
    pub offsets_ms: BTreeMap<String, i64>,
    /// A metadata key whose value names a class: that class overrides the message's own class and priority. A value that
    /// is no class overrides nothing. Empty: nothing overrides.
    pub override_key: String,
}

/// The class of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityClass<'a> {
    /// Its name.
    pub name: &'a str,
    /// What is added to the store's time, in ms.
    pub offset_ms: i64,
}

impl PriorityClass<'_> {
    /// The priority of a message that the store accepts at this time (Unix ms).
    pub fn priority_at(self, now_ms: u64) -> i64 {
        (now_ms as i64).saturating_add(self.offset_ms)
    }
}

impl PriorityClasses {
    /// Checks every limit.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.offsets_ms.len() > PRIORITY_CLASSES_MAX {
            let why = format!("are {}; the maximum is {PRIORITY_CLASSES_MAX}", self.offsets_ms.len());
            return Err(Refusal::invalid("priority_classes.offsets_ms", why));
        }
        for (name, offset_ms) in &self.offsets_ms {
            check_text("priority_classes.offsets_ms", name, 1, PRIORITY_CLASS_BYTES_MAX)?;
            if offset_ms.unsigned_abs() > PRIORITY_OFFSET_MS_MAX {
                let why = format!("has {offset_ms} for '{name}'; must be within {PRIORITY_OFFSET_MS_MAX} of 0");
                return Err(Refusal::invalid("priority_classes.offsets_ms", why));
            }
        }
        check_text("priority_classes.override_key", &self.override_key, 0, METADATA_KEY_BYTES_MAX)
    }

    /// The class of a message: that which its metadata names, else its own; `None`: its priority counts.
    ///
    /// # Errors
    /// [`Refusal::Invalid`]: its own class is not one of the queue's.
    pub fn of(&self, message: &NewMessage) -> Result<Option<PriorityClass<'_>>, Refusal> {
        let overriding = message.metadata.get(&self.override_key).and_then(|name| self.find(name));
        match (overriding, &message.priority_class) {
            (Some(class), _) => Ok(Some(class)),
            (None, None) => Ok(None),
            (None, Some(name)) => self.find(name).map(Some).ok_or_else(|| {
                let names: Vec<&str> = self.offsets_ms.keys().map(String::as_str).collect();
                let there = if names.is_empty() { "has none".to_owned() } else { format!("has {}", names.join(", ")) };
                Refusal::invalid("priority_class", format!("'{name}' is not a class of the queue, which {there}"))
            }),
        }
    }

    fn find(&self, name: &str) -> Option<PriorityClass<'_>> {
        let (name, offset_ms) = self.offsets_ms.get_key_value(name)?;
        Some(PriorityClass { name, offset_ms: *offset_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{MessageId, Metadata};

    fn message(class: Option<&str>, tier: Option<&str>) -> NewMessage {
        let pairs = tier.map(|tier| ("tier".to_owned(), tier.to_owned()));
        NewMessage {
            priority_class: class.map(str::to_owned),
            metadata: Metadata::parse(pairs.into_iter().collect()).unwrap(),
            ..NewMessage::new(MessageId::parse("id", "m").unwrap(), 7)
        }
    }

    #[test]
    fn q28_metadata_overrides_the_class_and_the_priority_of_a_message() {
        let offsets_ms = [("urgent".to_owned(), -5_000), ("bulk".to_owned(), 9_000)].into();
        let classes = PriorityClasses { offsets_ms, override_key: "tier".to_owned() };
        assert_eq!(classes.check(), Ok(()));
        let name = |class, tier| classes.of(&message(class, tier)).map(|class| class.map(|class| class.name));
        assert_eq!(name(None, None), Ok(None));
        assert_eq!(name(Some("bulk"), None), Ok(Some("bulk")));
        assert_eq!(name(None, Some("urgent")), Ok(Some("urgent")));
        assert_eq!(name(Some("bulk"), Some("urgent")), Ok(Some("urgent")));
        assert_eq!(name(Some("bulk"), Some("gold")), Ok(Some("bulk")));
        assert_eq!(name(Some("unknown"), Some("bulk")), Ok(Some("bulk")));
        assert!(name(Some("unknown"), Some("gold")).is_err());
        let urgent = classes.of(&message(Some("urgent"), None)).unwrap().unwrap();
        assert_eq!((urgent.priority_at(10_000), urgent.priority_at(0)), (5_000, -5_000));
    }

    #[test]
    fn q28_classes_have_bounds() {
        let one = |name: &str, offset_ms| PriorityClasses {
            offsets_ms: [(name.to_owned(), offset_ms)].into(),
            ..PriorityClasses::default()
        };
        for good in [one("c", PRIORITY_OFFSET_MS_MAX as i64), one("c", -(PRIORITY_OFFSET_MS_MAX as i64))] {
            assert_eq!(good.check(), Ok(()));
        }
        for bad in [one("", 0), one("c", i64::MIN), one("c", i64::MAX), one("a\nb", 0), one(&"c".repeat(65), 0)] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        let many = (0..=PRIORITY_CLASSES_MAX).map(|n| (n.to_string(), 0)).collect();
        assert!(PriorityClasses { offsets_ms: many, ..PriorityClasses::default() }.check().is_err());
    }
}
