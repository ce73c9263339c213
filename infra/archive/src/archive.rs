//! The archive of an installation.

use crate::cassandra;
use crate::cloud;
use crate::encode::{Encoded, encode};
use crate::error::ArchiveError;
use crate::event::{NewObject, Reached, Written};
use crate::local;
use crate::name;
use crate::reader::Reader;
use crate::rows::{SliceKey, Tables};
use crate::supersede::{self, NewRows};
use crate::verify::Stored;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

const FOLDER_SCHEME: &str = "file://";
const CASSANDRA_SCHEME: &str = "cassandra://";
const STORES: [&str; 4] = ["AWS_", "GOOGLE_", "AZURE_", "CASSANDRA_"];
const PROBE: &str = "probe";
/// An object in the folder of each namespace that has an archive: from when on its spans have no gaps, in Unix ms. Without
/// content, as earlier versions have left it: that is not known.
const MARK: &str = "archive";

/// Whether an option or a variable is one of a store.
fn is_of_store(name: &str) -> bool {
    STORES.iter().any(|store| name.starts_with(store))
}

/// Counter events in an object store. Clones share what they have read.
#[derive(Clone)]
pub struct Archive {
    pub(crate) reader: Reader,
    /// The folder of the objects, if they are files.
    folder: Option<Arc<PathBuf>>,
    /// The other tables of the database with the objects, if they are in one.
    tables: Option<Arc<dyn Tables>>,
}

impl Archive {
    /// The archive with this address: `file:///FOLDER`, which is created, one of a cloud (`s3://BUCKET/PREFIX`, `gs://…`,
    /// `az://…`), or a keyspace of Cassandra (`cassandra://HOST:PORT,HOST:PORT/KEYSPACE`). Credentials and options are in the
    /// environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`, `CASSANDRA_…`).
    ///
    /// # Errors
    /// [`ArchiveError::Invalid`]: it is no such address, or the folder cannot be created.
    pub fn open(address: &str) -> Result<Archive, ArchiveError> {
        Archive::open_with(address, &[])
    }

    /// The same, with more options of the store, which go before those of the environment: names such as `AWS_ACCESS_KEY_ID`, and
    /// values.
    ///
    /// # Errors
    /// As [`open`](Archive::open).
    pub fn open_with(address: &str, options: &[(String, String)]) -> Result<Archive, ArchiveError> {
        let malformed = || {
            let like = "file:///FOLDER, s3://BUCKET or cassandra://HOST/KEYSPACE";
            ArchiveError::invalid(format!("is {address:?}; must be like {like}"))
        };
        if let Some(folder) = address.strip_prefix(FOLDER_SCHEME).map(PathBuf::from) {
            return if folder.is_absolute() { Archive::in_folder(folder) } else { Err(malformed()) };
        }
        // They are in capitals, and the crate knows them in small letters. It would take any `TOKEN` for its own.
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let variables = variables.filter(|(name, _)| is_of_store(name));
        // Of two values of an option the last one holds.
        let options = variables.chain(options.iter().cloned());
        let options = options.map(|(name, value)| (name.to_ascii_lowercase(), value));
        // In capitals, too: what is no address of Cassandra is shown in errors, and this may have a password.
        let scheme = address.get(..CASSANDRA_SCHEME.len());
        if let Some(scheme) = scheme.filter(|scheme| scheme.eq_ignore_ascii_case(CASSANDRA_SCHEME)) {
            let place = &address[scheme.len()..];
            let (store, tables) = cassandra::open(place, options)?;
            return Ok(Archive { tables: Some(tables), ..Archive::over(store) });
        }
        let url = Url::parse(address).map_err(|_| malformed())?;
        let (store, prefix) = cloud::open(&url, options).map_err(|error| ArchiveError::invalid(error.to_string()))?;
        Ok(Archive::over(Arc::new(PrefixStore::new(store, prefix))))
    }

    /// The archive in an object store. What that has written must be durable.
    pub fn over(store: Arc<dyn ObjectStore>) -> Archive {
        Archive { reader: Reader::new(store), folder: None, tables: None }
    }

    /// The options of a store in a text with a line `NAME=VALUE` for each.
    ///
    /// # Errors
    /// The number of a line, from 1 on, that is none. The error does not show it, since it may be a secret.
    pub fn read_options(text: &str) -> Result<Vec<(String, String)>, usize> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let option = |(number, line): (usize, &str)| {
            let option = line.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
            option.filter(|(name, _)| is_of_store(name)).ok_or(number + 1)
        };
        lines.map(option).collect()
    }

    fn in_folder(folder: PathBuf) -> Result<Archive, ArchiveError> {
        let unusable = |why: String| ArchiveError::invalid(format!("cannot use {}: {why}", folder.display()));
        std::fs::create_dir_all(&folder).map_err(|error| unusable(error.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| unusable(error.to_string()))?;
        Ok(Archive {
            reader: Reader::new(Arc::new(store.with_automatic_cleanup(true))),
            folder: Some(Arc::new(folder)),
            tables: None,
        })
    }

    /// Whether objects can be written, read and deleted.
    pub async fn check(&self) -> Result<(), ArchiveError> {
        let path = Path::from(format!("{PROBE}-{:016x}", std::process::id()));
        let store = &self.reader.store;
        store.put(&path, Bytes::from_static(b"probe").into()).await?;
        store.get_range(&path, 0..5).await?;
        match store.delete(&path).await {
            // Another process of this number has deleted it.
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes an object, reads it back and compares. When this returns, it is durable, and so are the rows of its events, if the
    /// archive has rows.
    ///
    /// # Errors
    /// [`ArchiveError::Invalid`]: an event is in no span or twice. [`ArchiveError::Damaged`]: the store has something else than
    /// what was written. [`ArchiveError::NoMark`], only from an archive with rows: the namespace is being deleted, or never began.
    pub async fn write(&self, namespace: &str, object: NewObject) -> Result<Written, ArchiveError> {
        let folder = name::slice(namespace, object.slice_ms)?;
        let (slice_ms, written_ms) = (object.slice_ms, object.written_ms);
        let with_rows = self.tables.clone().map(|tables| (tables, object.spans.clone()));
        let (encoded, events) = tokio::task::spawn_blocking(move || encode(object)).await??;
        let written = Written { rows: events.len() as u64, bytes: encoded.bytes.len() as u64 };
        let events = Arc::new(events);
        let mut rows = with_rows.map(|(tables, spans)| {
            let object = supersede::Written { slice_ms, written_ms, spans, events: events.clone() };
            NewRows::of(tables, &self.reader, namespace, object)
        });
        if let Some(rows) = &mut rows {
            rows.retract(None).await?;
        }
        let path = self.put(&folder, encoded, move |stored| stored.check_events(&events)).await?;
        if let Some(mut rows) = rows {
            rows.retract(Some(&path)).await?;
            rows.put().await?;
            match self.gapless_from_ms(namespace).await {
                // The namespace is being deleted, perhaps by a process that has already deleted the rows of this slice. Of a row and
                // a deletion with the same time, the deletion holds.
                Err(no_mark @ ArchiveError::NoMark { .. }) => {
                    rows.take_back().await?;
                    return Err(no_mark);
                }
                found => drop(found?),
            }
        }
        Ok(written)
    }

    /// Writes an object, reads it back and checks it. Returns its path when the object is durable.
    pub(crate) async fn put(
        &self,
        folder: &Path,
        encoded: Encoded,
        check: impl FnOnce(&Stored) -> Result<(), ArchiveError> + Send + 'static,
    ) -> Result<Path, ArchiveError> {
        let Encoded { name, bytes, sums } = encoded;
        let path = folder.clone().join(name.file());
        self.write_durably(&path, bytes.into()).await?;
        let bytes = self.reader.store.get(&path).await?.bytes().await?;
        let of = path.clone();
        let verified = tokio::task::spawn_blocking(move || {
            let stored = Stored::read(of.as_ref(), &name.sha256, &sums, bytes)?;
            check(&stored)
        });
        verified.await??;
        Ok(path)
    }

    /// Writes an object. When this returns, it survives a loss of power; until then it has no name. What a cloud has is durable.
    async fn write_durably(&self, path: &Path, bytes: Bytes) -> Result<(), ArchiveError> {
        let Some(folder) = self.folder.clone() else {
            self.reader.store.put(path, bytes.into()).await?;
            return Ok(());
        };
        let file = local::file_of(&folder, path);
        let written = tokio::task::spawn_blocking(move || local::write(&folder, &file, &bytes));
        written.await?.map_err(|error| ArchiveError::Unavailable { why: error.to_string() })
    }

    /// Begins the archive of a namespace. From then on its folder has a mark: a folder that is not mounted, or a bucket of
    /// another installation, looks like an archive of which nothing was ever written.
    ///
    /// `gapless_from_ms`: from this time on, and up to which the archive has a shard, each time of it is in the span of some object
    /// (Unix ms); `None`: that is not known. A later call changes it.
    pub async fn begin(&self, namespace: &str, gapless_from_ms: Option<u64>) -> Result<(), ArchiveError> {
        let path = name::folder(namespace)?.join(MARK);
        let content = gapless_from_ms.map(|from_ms| format!("{from_ms}\n")).unwrap_or_default();
        self.write_durably(&path, content.into()).await
    }

    /// From when on the archive of a namespace has no gaps, in Unix ms; `None`: that is not known.
    ///
    /// # Errors
    /// [`ArchiveError::NoMark`]: it was never begun, or is not there.
    pub async fn gapless_from_ms(&self, namespace: &str) -> Result<Option<u64>, ArchiveError> {
        let path = name::folder(namespace)?.join(MARK);
        let content = match self.reader.store.get(&path).await {
            Ok(found) => found.bytes().await?,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(ArchiveError::NoMark { namespace: namespace.to_owned() });
            }
            Err(error) => return Err(error.into()),
        };
        let damaged = || ArchiveError::damaged(path.as_ref(), "it is neither empty nor a time");
        match std::str::from_utf8(&content).map_err(|_| damaged())?.trim() {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| damaged()),
        }
    }

    /// How far a slice is written.
    pub async fn reached(&self, namespace: &str, slice_ms: u64) -> Result<Reached, ArchiveError> {
        self.gapless_from_ms(namespace).await?;
        let names = self.reader.names(namespace, slice_ms).await?;
        Ok(Reached {
            written_ms: names.iter().map(|name| name.written_ms).max().unwrap_or_default(),
            to_ms: names.iter().map(|name| name.to_ms).max().unwrap_or_default(),
        })
    }

    /// When the first slice begins that has something, in Unix ms; `None`: the namespace has none.
    ///
    /// # Errors
    /// [`ArchiveError::NoMark`]: a folder that is not mounted has no slices, which must not look as if retention had deleted them.
    pub async fn first_slice_ms(&self, namespace: &str) -> Result<Option<u64>, ArchiveError> {
        self.gapless_from_ms(namespace).await?;
        Ok(self.slices(namespace).await?.first().copied())
    }

    /// Deletes the slices of a namespace that end at or before a time (Unix ms). Returns how many objects went.
    pub async fn delete_before(
        &self,
        namespace: &str,
        slice_length_ms: u64,
        before_ms: u64,
    ) -> Result<u64, ArchiveError> {
        let mut deleted = 0;
        for slice_ms in self.slices(namespace).await? {
            if slice_ms + slice_length_ms <= before_ms {
                let slice = name::slice(namespace, slice_ms)?;
                self.delete_rows(namespace, slice_ms).await?;
                deleted += self.delete(&slice).await?;
                self.remove_folder(&slice).await?;
            }
        }
        Ok(deleted)
    }

    /// Deletes the rows of a slice, if the archive has rows. Its objects must still be there: they say until when it was written.
    async fn delete_rows(&self, namespace: &str, slice_ms: u64) -> Result<(), ArchiveError> {
        let Some(tables) = &self.tables else { return Ok(()) };
        let names = self.reader.names(namespace, slice_ms).await?;
        match names.iter().map(|name| name.written_ms).max() {
            Some(written_ms) => tables.delete_slice(SliceKey { namespace, slice_ms }, written_ms).await,
            None => Ok(()),
        }
    }

    /// Removes what is left of a folder on a disk or in a database: a process that died may have left files that are no
    /// objects, and a folder that stays looks like a slice.
    async fn remove_folder(&self, path: &Path) -> Result<(), ArchiveError> {
        if let Some(tables) = &self.tables {
            return tables.remove_folder(path).await;
        }
        let Some(root) = &self.folder else { return Ok(()) };
        let folder = local::file_of(root, path);
        match tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await? {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(ArchiveError::Unavailable { why: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Deletes all of a namespace. Returns how many objects went.
    pub async fn delete_namespace(&self, namespace: &str) -> Result<u64, ArchiveError> {
        let folder = name::folder(namespace)?;
        if self.tables.is_none() {
            return self.delete(&folder).await;
        }
        // The mark first: a pass under way takes back what it writes from now on.
        let mut deleted = match self.reader.store.delete(&folder.clone().join(MARK)).await {
            Ok(()) => 1,
            Err(object_store::Error::NotFound { .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        // Each slice by itself: if this process dies, the next one finds what is left.
        let slices = self.slices(namespace).await?;
        for slice_ms in slices {
            let slice = name::slice(namespace, slice_ms)?;
            self.delete_rows(namespace, slice_ms).await?;
            deleted += self.delete(&slice).await?;
            self.remove_folder(&slice).await?;
        }
        deleted += self.delete(&folder).await?;
        self.remove_folder(&folder).await?;
        Ok(deleted)
    }

    /// When the slices of a namespace begin, in Unix ms, rising.
    pub async fn slices(&self, namespace: &str) -> Result<BTreeSet<u64>, ArchiveError> {
        let folder = name::folder(namespace)?;
        let found = self.reader.store.list_with_delimiter(Some(&folder)).await?;
        Ok(found.common_prefixes.iter().filter_map(name::slice_of).collect())
    }

    async fn delete(&self, folder: &Path) -> Result<u64, ArchiveError> {
        self.delete_all(self.reader.store.list(Some(folder)).map_ok(|object| object.location).boxed()).await
    }

    pub(crate) async fn delete_all(
        &self,
        paths: BoxStream<'static, Result<Path, object_store::Error>>,
    ) -> Result<u64, ArchiveError> {
        let deleted: Vec<_> = self.reader.store.delete_stream(paths).collect().await;
        let mut gone = 0;
        for result in deleted {
            match result {
                // Another process deletes them, too.
                Ok(_) | Err(object_store::Error::NotFound { .. }) => gone += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(gone)
    }
}

/// When the slice of a time begins, in Unix ms.
pub fn slice_of(time_ms: u64, slice_length_ms: u64) -> u64 {
    time_ms - time_ms % slice_length_ms.max(1)
}
