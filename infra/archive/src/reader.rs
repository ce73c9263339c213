//! Reads objects by their parts: lists a slice, opens footers, fetches row groups. Objects never change, so an opened footer
//! stays in memory.

use crate::decode::decode;
use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, COUNTER_ID_BYTES};
use crate::footer::Footer;
use crate::name::{self, ObjectName};
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt, iter};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of an object's end that are read first: nearly every footer is shorter.
const TAIL_READ: u64 = 64 * 1_024;
/// The memory of footers that were read; beyond it all are read again. One takes some kilobytes, that of a merged object up to
/// some megabytes.
const FOOTERS_BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// Objects that one call opens at once.
const AT_ONCE: usize = 8;
/// How often a slice is read because an object of its list has gone.
pub(crate) const TRIES: usize = 3;

/// An object whose footer was read.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) path: Path,
    pub(crate) name: ObjectName,
    pub(crate) footer: Arc<Footer>,
}

/// An object that cannot be read.
pub(crate) struct Unread {
    pub(crate) name: ObjectName,
    pub(crate) error: ArchiveError,
}

/// What one list of a slice has shown.
pub(crate) struct View<T> {
    /// The opened objects, in the order of their times.
    pub(crate) objects: Vec<Opened>,
    /// Those that should have been opened, too.
    pub(crate) unread: Vec<Unread>,
    /// The spans of time of which something is wanted.
    pub(crate) wanted: T,
    /// The names in the list, in their order.
    pub(crate) names: Vec<ObjectName>,
}

impl<T> View<T> {
    /// The objects, if all could be opened.
    pub(crate) fn all(self) -> Result<Vec<Opened>, ArchiveError> {
        match self.unread.into_iter().next() {
            Some(unread) => Err(unread.error),
            None => Ok(self.objects),
        }
    }
}

/// An object of a list.
pub(crate) struct Listed {
    path: Path,
    pub(crate) name: ObjectName,
    bytes: u64,
}

/// Footers that were read.
struct Footers {
    by_path: HashMap<Path, Arc<Footer>>,
    /// Objects that the log names as damaged: once.
    damaged: HashSet<Path>,
    bytes: usize,
    bytes_max: usize,
}

impl Footers {
    fn up_to(bytes_max: usize) -> Footers {
        Footers { by_path: HashMap::new(), damaged: HashSet::new(), bytes: 0, bytes_max }
    }

    fn insert(&mut self, path: Path, footer: Arc<Footer>) {
        let bytes = footer.memory_bytes();
        if self.bytes + bytes > self.bytes_max {
            *self = Footers::up_to(self.bytes_max);
        }
        if bytes <= self.bytes_max && self.by_path.insert(path, footer).is_none() {
            self.bytes += bytes;
        }
    }
}

/// The objects of a store.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) store: Arc<dyn ObjectStore>,
    footers: Arc<Mutex<Footers>>,
}

impl Reader {
    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> Reader {
        Reader { store, footers: Arc::new(Mutex::new(Footers::up_to(FOOTERS_BYTES_MAX))) }
    }

    fn footers(&self) -> MutexGuard<'_, Footers> {
        self.footers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all objects in a slice, in no order.
    pub(crate) async fn names(&self, namespace: &str, slice_ms: u64) -> Result<Vec<ObjectName>, ArchiveError> {
        Ok(self.list(namespace, slice_ms).await?.into_iter().map(|listed| listed.name).collect())
    }

    /// The objects of a slice that may have something of one of some spans of time: `wanted` chooses these, given the names of
    /// all objects. An object that cannot be opened may concern only a part of what is wanted, so it does not fail the others.
    ///
    /// # Errors
    /// [`ArchiveError::Gone`]: the caller reads the slice again, up to [`TRIES`] times.
    pub(crate) async fn open<T: AsRef<[Range<u64>]>>(
        &self,
        namespace: &str,
        slice_ms: u64,
        wanted: impl Fn(&[Listed]) -> T,
    ) -> Result<View<T>, ArchiveError> {
        let mut listed = self.list(namespace, slice_ms).await?;
        let mut names: Vec<ObjectName> = listed.iter().map(|listed| listed.name.clone()).collect();
        names.sort_unstable();
        let wanted = wanted(&listed);
        let times_ms = wanted.as_ref();
        listed.retain(|listed| times_ms.iter().any(|times_ms| listed.name.overlaps(times_ms)));
        listed.sort_by_key(|listed| listed.name.from_ms);
        let opening = iter(listed).map(|listed| async move {
            let name = listed.name.clone();
            (name, self.open_one(listed).await)
        });
        let mut opening = opening.buffered(AT_ONCE);
        let mut view = View { objects: Vec::new(), unread: Vec::new(), wanted, names };
        while let Some((name, opened)) = opening.next().await {
            match opened {
                Ok(object) => view.objects.push(object),
                Err(gone @ ArchiveError::Gone { .. }) => return Err(gone),
                Err(error) => {
                    self.warn(&error);
                    view.unread.push(Unread { name, error });
                }
            }
        }
        Ok(view)
    }

    /// Names a damaged object in the log.
    fn warn(&self, error: &ArchiveError) {
        if let ArchiveError::Damaged { path, why } = error
            && self.footers().damaged.insert(Path::from(path.as_str()))
        {
            tracing::warn!(path, why, "an object of the archive is damaged: what only it has is not answered");
        }
    }

    /// The events of a row group whose counters are wanted.
    pub(crate) async fn events(
        &self,
        object: &Opened,
        number: usize,
        is_wanted: impl Fn(&[u8; COUNTER_ID_BYTES]) -> bool + Send + 'static,
    ) -> Result<Vec<ArchivedEvent>, ArchiveError> {
        let (path, footer) = (object.path.clone(), object.footer.clone());
        let Some(group) = footer.groups.get(number) else { return Ok(Vec::new()) };
        let bytes = self.store.get_range(&path, group.offset..group.offset + group.bytes).await?;
        let decoded = tokio::task::spawn_blocking(move || decode(path.as_ref(), &footer, number, bytes, is_wanted));
        decoded.await?
    }

    async fn list(&self, namespace: &str, slice_ms: u64) -> Result<Vec<Listed>, ArchiveError> {
        let folder = name::slice(namespace, slice_ms)?;
        let all: Vec<_> = self.store.list(Some(&folder)).try_collect().await?;
        let listed = |object: object_store::ObjectMeta| {
            let name = object.location.filename().and_then(ObjectName::parse)?;
            Some(Listed { path: object.location, name, bytes: object.size })
        };
        Ok(all.into_iter().filter_map(listed).collect())
    }

    async fn open_one(&self, listed: Listed) -> Result<Opened, ArchiveError> {
        let Listed { path, name, bytes } = listed;
        let known = self.footers().by_path.get(&path).cloned();
        if let Some(footer) = known {
            return Ok(Opened { path, name, footer });
        }
        let tail = self.tail(&path, bytes, TAIL_READ).await?;
        let whole = match Footer::length(&tail) {
            Some(length) if length <= tail.len() => tail.slice(tail.len() - length..),
            Some(length) if length as u64 <= bytes => self.tail(&path, bytes, length as u64).await?,
            _ => return Err(ArchiveError::damaged(path.as_ref(), "it does not end as an object does")),
        };
        if crc32c::crc32c(&whole) != name.footer_crc {
            return Err(ArchiveError::damaged(path.as_ref(), "its footer has the wrong checksum"));
        }
        let footer = Arc::new(Footer::read(path.as_ref(), &whole, bytes)?);
        self.footers().insert(path.clone(), footer.clone());
        Ok(Opened { path, name, footer })
    }

    async fn tail(&self, path: &Path, bytes: u64, length: u64) -> Result<Bytes, object_store::Error> {
        match bytes.checked_sub(length) {
            Some(from) => self.store.get_range(path, from..bytes).await,
            None if bytes == 0 => Ok(Bytes::new()),
            None => self.store.get_range(path, 0..bytes).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Archive, NewObject, ShardSpan};
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn n15_the_footers_in_memory_have_a_bound() {
        let archive = Archive::over(Arc::new(InMemory::new()));
        for number in 0..40 {
            let event = ArchivedEvent {
                shard: 0,
                counter_id: [7; COUNTER_ID_BYTES],
                counter: None,
                time_ms: number,
                token: "t".into(),
                delta: Some(1),
                source: None,
                event_item_key: None,
            };
            let spans = vec![ShardSpan { shard: 0, from_ms: number, to_ms: number + 1 }];
            let object =
                NewObject { slice_ms: 0, slice_length_ms: 1_000, written_ms: number, spans, events: vec![event] };
            archive.write("ads", object).await.unwrap();
        }
        static EVER: Range<u64> = 0..u64::MAX;
        let all =
            async |reader: &Reader| reader.open("ads", 0, |_| std::slice::from_ref(&EVER)).await.unwrap().objects.len();
        let reader = &archive.reader;
        assert_eq!((all(reader).await, reader.footers().by_path.len()), (40, 40));
        let of_ten = reader.footers().bytes / 4;
        *reader.footers() = Footers::up_to(of_ten);
        for _ in 0..3 {
            assert_eq!(all(reader).await, 40);
            let footers = reader.footers();
            assert!(footers.bytes <= of_ten && !footers.by_path.is_empty(), "{} of {of_ten} bytes", footers.bytes);
        }
        *reader.footers() = Footers::up_to(of_ten / 1_000);
        assert_eq!((all(reader).await, reader.footers().by_path.len()), (40, 0), "none fits");
    }
}
