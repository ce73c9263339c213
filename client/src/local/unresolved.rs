//! The file `unresolved`: adds that the service refused for ever, or about which it no longer knows whether it counted them. They are
//! kept for an operator, and this library never sends them again.

use super::error::{IoContext as _, LocalError};
use super::files;
use super::frames::{End, Fields, Records, put_text, record};
use super::push_file::{Item, Push};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const NAME: &str = "unresolved";
/// No content is longer: it has two numbers and four texts. The last one is a reason, so no content ends in a zero.
const CONTENT_MAX: usize = 2 * 8 + 4 * 256;

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

/// The file of an open folder. It is made with the first add.
pub(super) struct UnresolvedFile {
    folder: PathBuf,
    /// An append and a read exclude each other.
    in_use: Mutex<()>,
}

impl UnresolvedFile {
    /// Reads what a process before this one has kept. A record at the end that was being written when this process died is cut: its add is
    /// still in the push.
    pub(super) fn open(folder: &Path) -> Result<(UnresolvedFile, Vec<Unresolved>), LocalError> {
        let path = folder.join(NAME);
        let (adds, torn_at) = read(&path)?;
        if let Some(length) = torn_at {
            let file = OpenOptions::new().write(true).open(&path).when("open", &path)?;
            file.set_len(length).when("cut", &path)?;
        }
        if !adds.is_empty() {
            // The process may have been killed before the file was on disk. From here on, these adds are removed from their pushes.
            File::open(&path).and_then(|file| file.sync_all()).when("write", &path)?;
        }
        Ok((UnresolvedFile { folder: folder.to_owned(), in_use: Mutex::default() }, adds))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The adds that the file has. The file stays as it is.
    pub(super) fn read(&self) -> Result<Vec<Unresolved>, LocalError> {
        let _no_append = self.lock();
        read(&self.folder.join(NAME)).map(|(adds, _)| adds)
    }

    /// Appends adds. They are on disk when this has returned.
    pub(super) fn append(&self, adds: &[Unresolved]) -> io::Result<()> {
        let _one_at_a_time = self.lock();
        let path = self.folder.join(NAME);
        let is_new = !path.exists();
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let before = file.metadata()?.len();
        let records: Vec<u8> = adds.iter().flat_map(Unresolved::encode).collect();
        let written = file.write_all(&records).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // A part of a record would damage the records that are appended later.
            file.set_len(before)?;
            return Err(error);
        }
        if is_new { files::sync_folder(&self.folder) } else { Ok(()) }
    }
}

/// The adds of a file, each once, and where a record begins that was not written to its end.
fn read(path: &Path) -> Result<(Vec<Unresolved>, Option<u64>), LocalError> {
    let content = files::read(path)?.unwrap_or_default();
    let mut records = Records::new(&content);
    let mut seen = HashSet::new();
    let mut adds = Vec::new();
    for content in records.by_ref() {
        let add =
            Unresolved::decode(content).ok_or_else(|| LocalError::damaged(path, "a record has an unknown content"))?;
        if seen.insert(add.event()) {
            adds.push(add);
        }
    }
    match records.end(CONTENT_MAX) {
        End::Whole => Ok((adds, None)),
        End::Torn => Ok((adds, Some(records.at as u64))),
        End::Damaged => Err(LocalError::damaged(path, format!("the record at byte {} is damaged", records.at))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn adds() -> [Unresolved; 3] {
        let push =
            Push { namespace: "ads".to_owned(), token: "t".to_owned(), time_ms: 5, logged: None, items: Vec::new() };
        ["c", "d", "e"].map(|counter| {
            let item = Item { slot: 1, counter: counter.to_owned(), delta: -3, base: 4 };
            Unresolved::new(&push, &item, "TOKEN_EXPIRED")
        })
    }

    fn opened(folder: &Path) -> (UnresolvedFile, Vec<Unresolved>) {
        UnresolvedFile::open(folder).expect("a sound file")
    }

    #[test]
    fn l2_unresolved_adds_are_kept_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, none) = opened(folder.path());
        assert_eq!((none, file.read().expect("none")), (vec![], vec![]));
        let [first, second, _] = adds();
        file.append(std::slice::from_ref(&first)).expect("room");
        file.append(&[first.clone(), second.clone()]).expect("room");
        let both = vec![first, second];
        assert_eq!((&file.read().expect("two"), &opened(folder.path()).1), (&both, &both));
    }

    #[test]
    fn l2_a_read_of_unresolved_adds_leaves_half_a_record_as_it_is_and_the_next_process_cuts_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let (file, _) = opened(folder.path());
        let adds = adds();
        file.append(&adds[..2]).expect("room");
        let two = fs::read(&path).expect("the file");
        file.append(&adds[2..]).expect("room");
        let three = fs::read(&path).expect("the file");
        // The rest is missing, or the file has zeros in its place.
        let sizes = (two.len()..three.len()).flat_map(|length| [(length, length), (length, three.len())]);
        for (length, size) in sizes {
            let mut part = three[..length].to_vec();
            part.resize(size, 0);
            fs::write(&path, &part).expect("a part of a record");
            assert_eq!(file.read().expect("two"), adds[..2], "{length} of {size} bytes");
            assert_eq!(fs::read(&path).expect("the file"), part, "it is not cut");
            fs::write(&path, &three).expect("the whole record");
            assert_eq!(file.read().expect("three"), adds, "{length} of {size} bytes");
            fs::write(&path, &part).expect("a part of a record");
            assert_eq!(opened(folder.path()).1, adds[..2], "{length} of {size} bytes");
            assert_eq!(fs::read(&path).expect("the file"), two, "{length} of {size} bytes");
        }
    }

    #[test]
    fn l2_a_flipped_bit_of_unresolved_adds_is_refused_and_cuts_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let (file, _) = opened(folder.path());
        file.append(&adds()).expect("room");
        let sound = fs::read(&path).expect("the file");
        for bit in 0..sound.len() * 8 {
            let mut damaged = sound.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &damaged).expect("a damage");
            assert!(matches!(file.read(), Err(LocalError::Damaged { .. })), "bit {bit}");
            let refused = UnresolvedFile::open(folder.path()).map(|(_, adds)| adds);
            assert!(matches!(refused, Err(LocalError::Damaged { .. })), "bit {bit}: {refused:?}");
            assert_eq!(fs::read(&path).expect("the file"), damaged, "bit {bit}");
        }
    }
}
