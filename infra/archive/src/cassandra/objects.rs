//! The object store. A name leads to a version, and only compare-and-set changes the version of a name. So a reader sees a
//! content that was written as a whole, no clock decides which of two puts is the later one, and an object gets its name
//! when all of it is there.

use super::chunks::Version;
use super::connection::{Cluster, Connection, failed, unavailable};
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt, TryStreamExt, iter, once};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use scylla::value::CqlTimestamp;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The folder of what is in no other: Cassandra has no empty keys.
const ROOT: &str = "/";
/// How often a call begins again because another has replaced the object meanwhile.
const TRIES: usize = 5;
/// Objects that one call deletes at once. Those of a folder are one partition: compare-and-sets in it delay each other.
const DELETES_AT_ONCE: usize = 1;

/// Objects in a keyspace.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    connection: Arc<Connection>,
}

/// Where an object is.
struct Location<'a> {
    folder: &'a str,
    name: &'a str,
}

/// What a name leads to, and since when, in Unix ms.
struct Named {
    version: Version,
    modified_ms: i64,
}

/// A row of `objects`, without its key.
type ObjectRow = (Uuid, i64, i32, CqlTimestamp);

impl Objects {
    pub(crate) fn over(connection: Arc<Connection>) -> Objects {
        Objects { connection }
    }

    async fn put_whole(&self, path: &Path, payload: PutPayload) -> Result<(), Error> {
        let location = Location::of(path)?;
        let cluster = self.connection.cluster().await?;
        let content = payload.into();
        let version = Version::new(bytes::Bytes::len(&content));
        // Before the name: a name in no listed folder would be found by no later deletion.
        cluster.ensure_folders(path).await?;
        cluster.write(location.folder, &version, &content).await?;
        let replaced = cluster.publish(&location, &version).await?;
        // Again: a deletion of the folder may have come between.
        cluster.ensure_folders(path).await?;
        if let Some(replaced) = replaced {
            cluster.discard(location.folder, replaced.id, replaced.chunks()).await?;
        }
        Ok(())
    }

    async fn delete_one(&self, path: &Path) -> Result<(), Error> {
        let location = Location::of(path)?;
        let cluster = self.connection.cluster().await?;
        for _ in 0..TRIES {
            let Some(named) = cluster.named(&location, true).await? else { return Err(not_found(path)) };
            let Version { id, .. } = named.version;
            if cluster.applies(&cluster.statements.delete_object, (location.folder, location.name, id)).await? {
                return cluster.discard(location.folder, id, named.version.chunks()).await;
            }
        }
        Err(failed(format!("{path} is replaced faster than it is deleted")))
    }

    /// The objects of a folder, and the names of the folders in it.
    async fn entries(&self, folder: &str) -> Result<ListResult, Error> {
        let cluster = self.connection.cluster().await?;
        let objects = cluster.rows::<(String, i64, CqlTimestamp)>(&cluster.statements.objects, (folder,));
        let folders = cluster.rows::<(String,)>(&cluster.statements.folders, (folder,));
        let (objects, folders) = futures::try_join!(objects, folders)?;
        let meta = |(name, bytes, modified): (String, i64, CqlTimestamp)| {
            Ok(meta(path_in(folder, &name)?, bytes as u64, modified.0))
        };
        Ok(ListResult {
            objects: objects.into_iter().map(meta).collect::<Result<_, Error>>()?,
            common_prefixes: folders.iter().map(|(name,)| path_in(folder, name)).collect::<Result<_, Error>>()?,
        })
    }
}

impl Cluster {
    /// Gives a version its name. Returns the version that had it.
    ///
    /// # Errors
    /// If the reply is lost, the version may have the name: its chunks stay.
    async fn publish(&self, location: &Location<'_>, new: &Version) -> Result<Option<Version>, Error> {
        let Location { folder, name } = *location;
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
        let (bytes, chunk_bytes, now) = (new.bytes as i64, new.chunk_bytes as i32, CqlTimestamp(now_ms));
        for _ in 0..TRIES {
            let before = self.named(location, true).await?.map(|named| named.version);
            let is_applied = match before {
                Some(before) => {
                    let values = (new.id, bytes, chunk_bytes, now, folder, name, before.id);
                    self.applies(&self.statements.replace_object, values).await?
                }
                None => {
                    let values = (folder, name, new.id, bytes, chunk_bytes, now);
                    self.applies(&self.statements.create_object, values).await?
                }
            };
            if is_applied {
                return Ok(before);
            }
        }
        Err(failed(format!("{folder}/{name} is replaced too often by others")))
    }

    /// The version that a name leads to. `is_settled`: the read first completes a change without an answer, so the name leads to this
    /// version until the next change begins.
    async fn named(&self, location: &Location<'_>, is_settled: bool) -> Result<Option<Named>, Error> {
        let mut statement = self.statements.object.clone();
        if is_settled {
            statement.set_consistency(self.settled);
        }
        let found = self.row::<ObjectRow>(&statement, (location.folder, location.name)).await?;
        Ok(found.map(|(id, bytes, chunk_bytes, modified)| Named {
            version: Version { id, bytes: bytes as u64, chunk_bytes: chunk_bytes.max(1) as u32 },
            modified_ms: modified.0,
        }))
    }

    /// Lists the folders of a path in theirs.
    async fn ensure_folders(&self, path: &Path) -> Result<(), Error> {
        let whole = path.as_ref();
        for (end, _) in whole.match_indices('/') {
            let (parent, name) = split(&whole[..end]);
            if self.row::<(String,)>(&self.statements.folder, (parent, name)).await?.is_none() {
                // Another process may be faster.
                self.applies(&self.statements.create_folder, (parent, name)).await?;
            }
        }
        Ok(())
    }
}

/// Removes a folder without objects, and what is left of versions in it.
pub(crate) async fn remove_folder(cluster: &Cluster, path: &Path) -> Result<(), Error> {
    cluster.discard_all(path.as_ref()).await?;
    let (parent, name) = split(path.as_ref());
    cluster.applies(&cluster.statements.delete_folder, (parent, name)).await.map(drop)
}

impl Location<'_> {
    fn of(path: &Path) -> Result<Location<'_>, Error> {
        if path.as_ref().is_empty() {
            return Err(failed("an object needs a name"));
        }
        let (folder, name) = split(path.as_ref());
        Ok(Location { folder, name })
    }
}

/// The folder of a path, and its last part.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((ROOT, path))
}

fn path_in(folder: &str, name: &str) -> Result<Path, Error> {
    let path = if folder == ROOT { Path::parse(name) } else { Path::parse(format!("{folder}/{name}")) };
    Ok(path?)
}

fn folder_of(prefix: Option<&Path>) -> &str {
    prefix.map(Path::as_ref).filter(|prefix| !prefix.is_empty()).unwrap_or(ROOT)
}

fn meta(location: Path, size: u64, modified_ms: i64) -> ObjectMeta {
    let last_modified = (UNIX_EPOCH + Duration::from_millis(modified_ms as u64)).into();
    ObjectMeta { location, last_modified, size, e_tag: None, version: None }
}

fn not_found(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "Cassandra has no such object".into() }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: "an archive in Cassandra".to_owned() }
}

#[async_trait]
impl ObjectStore for Objects {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult, Error> {
        if options.mode != PutMode::Overwrite {
            return Err(not_implemented("a put with a condition"));
        }
        self.put_whole(location, payload).await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>, Error> {
        Err(not_implemented("a put in parts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult, Error> {
        let cluster = self.connection.cluster().await?;
        let place = Location::of(location)?;
        for _ in 0..TRIES {
            let named = cluster.named(&place, false).await?.ok_or_else(|| not_found(location))?;
            let meta = meta(location.clone(), named.version.bytes, named.modified_ms);
            options.check_preconditions(&meta)?;
            let range = match &options.range {
                Some(range) => range.as_range(meta.size).map_err(unavailable)?,
                None => 0..meta.size,
            };
            let wanted = if options.head { 0..0 } else { range.clone() };
            // Without some of its chunks it was replaced or deleted since: its name says which.
            if let Some(parts) = cluster.read(&named.version, wanted).await? {
                let payload = GetResultPayload::Stream(iter(parts.into_iter().map(Ok)).boxed());
                return Ok(GetResult { payload, meta, range, attributes: Default::default() });
            }
        }
        Err(failed(format!("{location} lacks a part of its content, or is replaced faster than it is read")))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path, Error>>,
    ) -> BoxStream<'static, Result<Path, Error>> {
        let objects = self.clone();
        let deleted = locations.map(move |path| {
            let objects = objects.clone();
            async move {
                let path = path?;
                objects.delete_one(&path).await.map(|()| path)
            }
        });
        deleted.buffered(DELETES_AT_ONCE).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta, Error>> {
        let (objects, root) = (self.clone(), folder_of(prefix).to_owned());
        let listed = async move {
            let (mut found, mut folders) = (Vec::new(), vec![root]);
            while let Some(folder) = folders.pop() {
                let entries = objects.entries(&folder).await?;
                found.extend(entries.objects.into_iter().map(Ok));
                folders.extend(entries.common_prefixes.into_iter().map(String::from));
            }
            Ok::<_, Error>(iter(found))
        };
        once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult, Error> {
        self.entries(folder_of(prefix)).await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<(), Error> {
        Err(not_implemented("a copy"))
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cassandra")
    }
}
