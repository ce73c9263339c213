//! The content of objects: versions, which never change, in chunks.

use super::connection::Cluster;
use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt, iter};
use object_store::Error;
use std::ops::Range;
use uuid::Uuid;

/// Bytes of a chunk: small for Cassandra, and a row group is in few of them.
const CHUNK_BYTES: u32 = 256 * 1_024;
/// Chunks of one object that are written, read or deleted at once.
const AT_ONCE: usize = 8;

/// A content of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) id: Uuid,
    pub(crate) bytes: u64,
    pub(crate) chunk_bytes: u32,
}

impl Version {
    /// A new one, for this many bytes.
    pub(crate) fn new(bytes: usize) -> Version {
        Version { id: Uuid::new_v4(), bytes: bytes as u64, chunk_bytes: CHUNK_BYTES }
    }

    pub(crate) fn chunks(&self) -> i32 {
        self.bytes.div_ceil(self.chunk_bytes.into()) as i32
    }
}

impl Cluster {
    /// Writes all chunks of a version. First it is noted that the folder has it: if this process dies, they are deleted with the
    /// folder.
    pub(crate) async fn write(&self, folder: &str, version: &Version, content: &Bytes) -> Result<(), Error> {
        self.run(&self.statements.create_version, (folder, version.id, version.chunks())).await?;
        let bytes = version.chunk_bytes as usize;
        let writes = (0..version.chunks()).map(async |number| {
            let from = number as usize * bytes;
            let data = content.slice(from..content.len().min(from + bytes));
            self.run(&self.statements.create_chunk, (version.id, number, data)).await
        });
        iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Bytes of a version; `None`: a chunk is not there.
    pub(crate) async fn read(&self, version: &Version, range: Range<u64>) -> Result<Option<Vec<Bytes>>, Error> {
        if range.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let bytes = u64::from(version.chunk_bytes);
        let wanted = range.start / bytes..range.end.div_ceil(bytes);
        let reads = wanted.map(async |number| {
            let chunk = self.row::<(Bytes,)>(&self.statements.chunk, (version.id, number as i32)).await?;
            let from = number * bytes;
            let part = range.start.saturating_sub(from)..(range.end - from).min(bytes);
            let part = part.start as usize..part.end as usize;
            let has_part = |data: &Bytes| data.len() >= part.end;
            let data = chunk.map(|(data,)| data).filter(has_part);
            Ok(data.map(|data| data.slice(part)))
        });
        let read: Result<Vec<Option<Bytes>>, Error> = iter(reads).buffered(AT_ONCE).try_collect().await;
        Ok(read?.into_iter().collect())
    }

    /// Deletes a version that no name has any more.
    pub(crate) async fn discard(&self, folder: &str, id: Uuid, chunks: i32) -> Result<(), Error> {
        let deletes = (0..chunks).map(async |number| self.run(&self.statements.delete_chunk, (id, number)).await);
        iter(deletes).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        self.run(&self.statements.delete_version, (folder, id)).await
    }

    /// Deletes what processes that died have left in a folder without objects.
    pub(crate) async fn discard_all(&self, folder: &str) -> Result<(), Error> {
        for (id, chunks) in self.rows::<(Uuid, i32)>(&self.statements.versions, (folder,)).await? {
            self.discard(folder, id, chunks).await?;
        }
        Ok(())
    }
}
