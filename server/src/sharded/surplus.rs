//! Leases that tries of one request with an id have got in several shards (Q10): they may be more than one try may get.

use tallystone_model::limits::DEQUEUE_PAYLOAD_BYTES;
use tallystone_model::{Lease, fencing};
use uuid::Uuid;

/// The position of the first shard in the order of this request id, which is the same through every server. `None`: it has no id.
pub(super) fn first_of_id(request_id: &str, shard_count: usize) -> Option<usize> {
    let hash = || Uuid::new_v5(&Uuid::NAMESPACE_OID, request_id.as_bytes()).as_u128();
    (!request_id.is_empty() && shard_count > 0).then(|| (hash() % shard_count as u128) as usize)
}

/// Drops what is more than the limit, or than one answer may have. `place`: that of a shard in the order of the request id. What the
/// first of them gave, one try has got: all of it stays.
///
/// WHY the rest is not released, but expires: the answer of the other try may have reached a worker.
pub(super) fn cut(leases: &mut Vec<Lease>, limit: usize, place: impl Fn(u16) -> Option<usize>) {
    let place_of = |lease: &Lease| u16::try_from(fencing::shard_of(lease.fencing_token)).ok().and_then(&place);
    leases.sort_by_key(place_of);
    let first = leases.first().map(place_of);
    let (mut count, mut payload_bytes) = (0, 0);
    leases.retain(|lease| {
        let fits = count < limit && payload_bytes + lease.payload.len() <= DEQUEUE_PAYLOAD_BYTES;
        let stays = fits || Some(place_of(lease)) == first;
        if stays {
            count += 1;
            payload_bytes += lease.payload.len();
        }
        stays
    });
}
