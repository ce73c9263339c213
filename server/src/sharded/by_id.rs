//! The shard of a message that a call names by its id, or by its lease (docs/decisions/0180).

use super::one_queue::OneQueue;
use futures::future::try_join_all;
use tallystone_model::store::LeaseRef;
use tallystone_model::{MessageId, Refusal, Shard, Store, fencing};

impl<S: Store> OneQueue<'_, S> {
    /// The number of the shard of each of these messages: of a simple queue by its id, of an exclusive one the first shard that has
    /// a message of this id. An id that no message has is of any shard: each of them says so.
    pub(super) async fn numbers_of(&self, ids: &[&MessageId]) -> Result<Vec<u16>, Refusal> {
        if self.layout.exclusivity_key.is_none() {
            return Ok(ids.iter().map(|id| Shard::number_of(self.layout.shards, None, id)).collect());
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (store, ids): (&S, Vec<MessageId>) = (self.store, ids.iter().map(|id| (*id).clone()).collect());
        let ids = &ids;
        let held = self.numbers().map(|number| {
            self.on_time(number, || None, move |shard: Shard| async move { store.holds(&shard, ids).await })
        });
        let held = try_join_all(held).await?;
        let first_of = |at: usize| (0..).zip(&held).find(|(_, held)| held[at]).map_or(0, |(number, _)| number);
        Ok((0..ids.len()).map(first_of).collect())
    }

    /// The number of the shard of each of these leases: its fencing token names it. Without a token as [`numbers_of`](Self::numbers_of).
    pub(super) async fn numbers_of_leases(&self, leases: &[LeaseRef]) -> Result<Vec<u16>, Refusal> {
        let by_token = |lease: &LeaseRef| match self.layout.exclusivity_key {
            None => Some(Shard::number_of(self.layout.shards, None, &lease.id)),
            Some(_) if lease.fencing_token == 0 => None,
            Some(_) => {
                let number = fencing::shard_of(lease.fencing_token);
                u16::try_from(number).ok().filter(|number| *number < self.layout.shards)
            }
        };
        let mut numbers: Vec<Option<u16>> = leases.iter().map(by_token).collect();
        let without: Vec<usize> = (0..leases.len()).filter(|at| numbers[*at].is_none()).collect();
        let ids: Vec<&MessageId> = without.iter().map(|at| &leases[*at].id).collect();
        for (at, number) in without.into_iter().zip(self.numbers_of(&ids).await?) {
            numbers[at] = Some(number);
        }
        Ok(numbers.into_iter().map(Option::unwrap_or_default).collect())
    }
}
