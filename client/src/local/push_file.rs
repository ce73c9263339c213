//! The file `push-NAMESPACE`: what a push sends. It is on disk before the first byte is sent, and is removed when each of its adds has
//! a definite answer and the bases are on disk. A restart sends it again as it is. A push that is written to a log instead has another
//! magic number, so that versions of this library that know only calls refuse it.

use super::error::{IoContext as _, LocalError};
use super::files::{self, UNFINISHED};
use super::frames::{Fields, Records, put_text, record};
use super::options::check_names;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "push-";
/// Of a push that calls send.
const MAGIC: u64 = u64::from_le_bytes(*b"TSPUSH_1");
/// Of a push that is written to a log.
const MAGIC_LOGGED: u64 = u64::from_le_bytes(*b"TSPUSH_2");

/// One add of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) slot: u32,
    pub(super) counter: String,
    pub(super) delta: i64,
    /// The base of the slot once the add is counted.
    pub(super) base: i64,
}

/// The adds of a namespace that are being pushed, with the token and the time that all of them have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Push {
    pub(super) namespace: String,
    pub(super) token: String,
    pub(super) time_ms: u64,
    /// `None`: calls send it.
    pub(super) logged: Option<Logged>,
    pub(super) items: Vec<Item>,
}

/// Where a push is written instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) log: String,
    /// The mark of the namespace while the push is not there.
    pub(super) mark_before: String,
}

impl Push {
    /// A capital has a `+` before it: some file systems regard `a` and `A` as the same.
    fn file_name(namespace: &str) -> String {
        let plain = |c: char| if c.is_ascii_uppercase() { format!("+{}", c.to_ascii_lowercase()) } else { c.into() };
        format!("{PREFIX}{}", namespace.chars().map(plain).collect::<String>())
    }

    /// Where the file of a namespace is.
    pub(super) fn path(folder: &Path, namespace: &str) -> PathBuf {
        folder.join(Push::file_name(namespace))
    }

    /// Writes the file. It has its name after [`Push::finish`].
    pub(super) fn write(&self, folder: &Path, folder_id: u64) -> io::Result<()> {
        files::write_unfinished(folder, &Push::file_name(&self.namespace), &self.encode(folder_id)).map(drop)
    }

    /// Names the file. This is on disk after `sync_folder`.
    pub(super) fn finish(&self, folder: &Path) -> io::Result<()> {
        files::finish(folder, &Push::file_name(&self.namespace))
    }

    fn encode(&self, folder_id: u64) -> Vec<u8> {
        let magic = if self.logged.is_some() { MAGIC_LOGGED } else { MAGIC };
        let mut content = [magic, folder_id, self.time_ms].map(u64::to_le_bytes).concat();
        put_text(&mut content, &self.namespace);
        put_text(&mut content, &self.token);
        if let Some(Logged { log, mark_before }) = &self.logged {
            put_text(&mut content, log);
            put_text(&mut content, mark_before);
        }
        for item in &self.items {
            content.extend(item.slot.to_le_bytes());
            content.extend(item.delta.to_le_bytes());
            content.extend(item.base.to_le_bytes());
            put_text(&mut content, &item.counter);
        }
        record(&content)
    }

    fn decode(content: &[u8], folder_id: u64) -> Option<Push> {
        let mut fields = Fields::new(content);
        let magic = fields.u64()?;
        if !matches!(magic, MAGIC | MAGIC_LOGGED) || fields.u64()? != folder_id {
            return None;
        }
        let time_ms = fields.u64()?;
        let (namespace, token) = (fields.text()?.to_owned(), fields.text()?.to_owned());
        let logged = if magic == MAGIC_LOGGED {
            Some(Logged { log: fields.text()?.to_owned(), mark_before: fields.text()?.to_owned() })
        } else {
            None
        };
        let mut items = Vec::new();
        while !fields.is_at_end() {
            let (slot, delta, base) = (fields.u32()?, fields.i64()?, fields.i64()?);
            let counter = fields.text()?.to_owned();
            check_names(&namespace, &counter).ok()?;
            items.push(Item { slot, counter, delta, base });
        }
        Some(Push { namespace, token, time_ms, logged, items })
    }

    /// The pushes that have begun and have not ended.
    pub(super) fn read_all(folder: &Path, folder_id: u64) -> Result<Vec<Push>, LocalError> {
        let mut pushes = Vec::new();
        // A push that is not found would be captured again with a new token, and count twice.
        for entry in std::fs::read_dir(folder).when("read", folder)? {
            let entry = entry.when("read", folder)?;
            let (name, path) = (entry.file_name(), entry.path());
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
            if name.ends_with(UNFINISHED) {
                continue;
            }
            let content = files::read(&path)?.unwrap_or_default();
            let mut records = Records::new(&content);
            let push = records.next().and_then(|content| Push::decode(content, folder_id));
            match push.filter(|push| Push::file_name(&push.namespace) == name && records.at == content.len()) {
                Some(push) => pushes.push(push),
                None => return Err(LocalError::damaged(&path, "it is not a push of this folder")),
            }
        }
        Ok(pushes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push() -> Push {
        let item = |slot, counter: &str, delta| Item { slot, counter: counter.to_owned(), delta, base: delta * 2 };
        let items = vec![item(0, "a", 5), item(7, "b", -5)];
        Push { namespace: "ads".to_owned(), token: "t".repeat(32), time_ms: 1_795_176_000_000, logged: None, items }
    }

    fn logged() -> Push {
        let logged = Logged { log: "adds".to_owned(), mark_before: "m".repeat(32) };
        Push { logged: Some(logged), ..push() }
    }

    #[test]
    fn l2_a_push_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Push::read_all(folder.path(), 7).expect("none"), []);
        push().write(folder.path(), 7).expect("room");
        assert_eq!(Push::read_all(folder.path(), 7).expect("none"), [], "it has no name yet");
        push().finish(folder.path()).expect("room");
        assert_eq!(Push::read_all(folder.path(), 7).expect("one"), [push()]);
        let other = Push { namespace: "ADS".to_owned(), ..logged() };
        other.write(folder.path(), 7).and_then(|()| other.finish(folder.path())).expect("room");
        let both = Push::read_all(folder.path(), 7).expect("two");
        assert!(both.len() == 2 && both.contains(&push()) && both.contains(&other), "{both:?}");
        assert_eq!(Push::file_name("ADs.1~"), "push-+a+ds.1~");
    }

    #[test]
    fn l2_a_folder_that_cannot_be_read_is_not_one_without_pushes() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = Push::read_all(&folder.path().join("missing"), 7);
        assert!(matches!(missing, Err(LocalError::Io { .. })), "{missing:?}");
    }

    #[test]
    fn l2_a_damaged_push_is_refused() {
        for push in [push(), logged()] {
            refuses_damage(&push);
        }
    }

    fn refuses_damage(push: &Push) {
        let folder = tempfile::tempdir().expect("a folder");
        push.write(folder.path(), 7).and_then(|()| push.finish(folder.path())).expect("room");
        assert!(Push::read_all(folder.path(), 8).is_err(), "of another folder");
        let path = Push::path(folder.path(), "ads");
        let content = std::fs::read(&path).expect("the push");
        for at in 0..content.len() {
            let mut damaged = content.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).expect("a damage");
            assert!(Push::read_all(folder.path(), 7).is_err(), "byte {at}");
            std::fs::write(&path, &content[..at]).expect("a cut");
            assert!(Push::read_all(folder.path(), 7).is_err(), "{at} bytes");
        }
        std::fs::write(&path, [content, vec![0]].concat()).expect("a byte more");
        assert!(Push::read_all(folder.path(), 7).is_err(), "a byte more");
    }
}
