//! Leases that tries of one request with an id have got in several shards (Q10). They may be more than one try may get, and no caller
//! waits for the rest.

use super::one_queue::OneQueue;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use tallystone_model::limits::{BATCH_ITEMS_MAX, DEQUEUE_PAYLOAD_BYTES};
use tallystone_model::store::{LeaseRef, Release};
use tallystone_model::{Lease, Shard, Store, fencing};
use uuid::Uuid;

/// The position of the shard that a request with this id is given to first: the same through every server. `None`: it has no id.
pub(super) fn first_of_id(request_id: &str, shard_count: usize) -> Option<usize> {
    let hash = || Uuid::new_v5(&Uuid::NAMESPACE_OID, request_id.as_bytes()).as_u128();
    (!request_id.is_empty() && shard_count > 0).then(|| (hash() % shard_count as u128) as usize)
}

/// Takes out what is more than the limit, or than one answer may have. `place`: that of a shard in the order in which the request goes
/// through them. What its first shard gave, one try has got: all of it stays.
pub(super) fn split_off(leases: &mut Vec<Lease>, limit: usize, place: impl Fn(u16) -> Option<usize>) -> Vec<LeaseRef> {
    let place_of = |lease: &Lease| number_of(lease.fencing_token).and_then(&place);
    leases.sort_by_key(place_of);
    let first = leases.first().map(place_of);
    let (mut rest, mut count, mut payload_bytes) = (Vec::new(), 0, 0);
    leases.retain(|lease| {
        let fits = count < limit && payload_bytes + lease.payload.len() <= DEQUEUE_PAYLOAD_BYTES;
        let stays = fits || Some(place_of(lease)) == first;
        if stays {
            count += 1;
            payload_bytes += lease.payload.len();
        } else {
            rest.push(LeaseRef { id: lease.id.clone(), fencing_token: lease.fencing_token });
        }
        stays
    });
    rest
}

/// Releases leases that no caller waits for. A future that is boxed here: those of a Dequeue are deep already.
pub(super) fn release<'a, S: Store>(queue: &'a OneQueue<'_, S>, leases: Vec<LeaseRef>) -> BoxFuture<'a, ()> {
    let mut parts: BTreeMap<u16, Vec<Release>> = BTreeMap::new();
    for lease in leases {
        if let Some(number) = number_of(lease.fencing_token) {
            parts.entry(number).or_default().push(Release::undelivered(lease, "given twice"));
        }
    }
    Box::pin(async move {
        let store = &**queue.store;
        for (number, releases) in parts {
            for releases in releases.chunks(BATCH_ITEMS_MAX) {
                let release = |shard: Shard| async move { store.release(&shard, releases.to_vec()).await };
                // If the store does not answer, they expire.
                drop(queue.on_time(number, release).await);
            }
            // The Dequeue that released them may have passed this shard already, and the script wakes no caller of this server.
            queue.changes(number);
            (queue.all_estimates.notify())(&queue.first.sibling(number));
        }
    })
}

/// The number of the shard of a lease.
fn number_of(fencing_token: u64) -> Option<u16> {
    u16::try_from(fencing::shard_of(fencing_token)).ok()
}
