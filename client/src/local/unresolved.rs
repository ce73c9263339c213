//! The file `unresolved`: adds that the service refused for ever, or about which it no longer knows whether it counted them. They are
//! kept for an operator, and this library never sends them again.

use super::error::{IoContext as _, LocalError};
use super::files;
use super::frames::{Fields, Records, put_text, record};
use super::push_file::{Item, Push};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

const NAME: &str = "unresolved";

/// An add that needs a decision. [docs/local-counters.md](https://github.com/tallystone/tallystone/blob/main/docs/local-counters.md)
/// says how to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unresolved {
    /// The namespace.
    pub namespace: String,
    /// The counter.
    pub counter: String,
    /// What was to be added.
    pub delta: i64,
    /// The token with which it was sent. In a topic it is the header `tallystone-push` of the record.
    pub token: String,
    /// The time of the event, in Unix ms.
    pub time_ms: u64,
    /// The reason of the service: `TOKEN_EXPIRED` (perhaps counted), `TOKEN_CONFLICT`, `OVERFLOW` or `INVALID_ARGUMENT` (not counted). Or
    /// `PUSH_FORGOTTEN`: Kafka no longer knows whether the add is in the topic.
    pub reason: String,
}

impl Unresolved {
    pub(super) fn new(push: &Push, item: &Item, reason: &str) -> Unresolved {
        Unresolved {
            namespace: push.namespace.clone(),
            counter: item.counter.clone(),
            delta: item.delta,
            token: push.token.clone(),
            time_ms: push.time_ms,
            reason: reason.to_owned(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut content = self.time_ms.to_le_bytes().to_vec();
        content.extend(self.delta.to_le_bytes());
        for text in [&self.namespace, &self.counter, &self.token, &self.reason] {
            put_text(&mut content, text);
        }
        record(&content)
    }

    fn decode(content: &[u8]) -> Option<Unresolved> {
        let mut fields = Fields::new(content);
        let (time_ms, delta) = (fields.u64()?, fields.i64()?);
        let mut text = || fields.text().map(str::to_owned);
        Some(Unresolved { namespace: text()?, counter: text()?, token: text()?, reason: text()?, time_ms, delta })
    }

    /// What identifies the event.
    pub(super) fn event(&self) -> (String, String, String, u64) {
        (self.namespace.clone(), self.counter.clone(), self.token.clone(), self.time_ms)
    }
}

/// Reads the file. A record at its end that was being written when the process died is ignored: its add is still in the push.
pub(super) fn read(folder: &Path) -> Result<Vec<Unresolved>, LocalError> {
    let path = folder.join(NAME);
    let content = files::read(&path)?.unwrap_or_default();
    let mut records = Records::new(&content);
    let mut seen = HashSet::new();
    let mut list = Vec::new();
    for content in records.by_ref() {
        let add =
            Unresolved::decode(content).ok_or_else(|| LocalError::damaged(&path, "a record has an unknown content"))?;
        if seen.insert(add.event()) {
            list.push(add);
        }
    }
    if records.at < content.len() {
        let file = OpenOptions::new().write(true).open(&path).when("open", &path)?;
        file.set_len(records.at as u64).when("cut", &path)?;
    }
    Ok(list)
}

/// Waits until the file is on disk: the process that appended to it may have been killed before. After this call, these adds are
/// removed from their pushes.
pub(super) fn sync(folder: &Path) -> Result<(), LocalError> {
    let path = folder.join(NAME);
    File::open(&path).and_then(|file| file.sync_all()).when("write", &path)
}

/// Appends adds. They are on disk when this has returned.
pub(super) fn append(folder: &Path, adds: &[Unresolved]) -> io::Result<()> {
    let path = folder.join(NAME);
    let is_new = !path.exists();
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let before = file.metadata()?.len();
    let records: Vec<u8> = adds.iter().flat_map(Unresolved::encode).collect();
    let written = file.write_all(&records).and_then(|()| file.sync_data());
    if let Err(error) = written {
        // A part of a record would hide the records that are appended later.
        file.set_len(before)?;
        return Err(error);
    }
    if is_new { files::sync_folder(folder) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l2_unresolved_adds_are_kept_once() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()).expect("none"), []);
        let item = Item { slot: 1, counter: "c".to_owned(), delta: -3, base: 4 };
        let push =
            Push { namespace: "ads".to_owned(), token: "t".to_owned(), time_ms: 5, logged: None, items: Vec::new() };
        let first = Unresolved::new(&push, &item, "TOKEN_EXPIRED");
        let second = Unresolved { counter: "d".to_owned(), ..first.clone() };
        append(folder.path(), std::slice::from_ref(&first)).expect("room");
        append(folder.path(), &[first.clone(), second.clone()]).expect("room");
        let path = folder.path().join(NAME);
        let whole = std::fs::read(&path).expect("the file");
        std::fs::write(&path, [&whole[..], &[9; 5]].concat()).expect("a torn record");
        assert_eq!(read(folder.path()).expect("two"), [first, second]);
        assert_eq!(std::fs::read(&path).expect("the file"), whole);
    }
}
