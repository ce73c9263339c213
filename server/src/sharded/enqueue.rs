//! Enqueue over several shards. While the number of shards is being changed (docs/decisions/0268), a message goes first to the closed
//! shard of its id: what that one has, it answers. Only what it does not have is for a current shard.

use super::batch::{divide, send};
use super::one_queue::OneQueue;
use super::store::Sharded;
use std::collections::BTreeSet;
use tallystone_model::message::{Enqueued, NewMessage};
use tallystone_model::store::Items;
use tallystone_model::{Generation, Layout, Refusal, Shard, Store};

impl<S: Store> Sharded<S> {
    /// Enqueue to a queue with this layout, which has other shards than the first one.
    pub(super) async fn enqueue_over(
        &self,
        first: &Shard,
        layout: &Layout,
        messages: Vec<NewMessage>,
    ) -> Items<Enqueued> {
        let queue = self.queue(first, layout);
        if layout.old().is_empty() {
            return queue.enqueue_to_current(messages).await;
        }
        let mut results: Vec<Result<Enqueued, Refusal>> = messages.iter().map(|_| Err(Refusal::moved())).collect();
        let mut open: Vec<usize> = (0..messages.len()).collect();
        for generation in layout.old() {
            let part: Vec<NewMessage> = open.iter().map(|at| messages[*at].clone()).collect();
            let answers = queue.enqueue_to(*generation, part).await;
            put(&mut results, &open, answers)?;
            open.retain(|at| results[*at].as_ref().is_err_and(Refusal::is_moved));
        }
        if open.is_empty() {
            return Ok(results);
        }
        let part: Vec<NewMessage> = open.iter().map(|at| messages[*at].clone()).collect();
        let answers = queue.enqueue_to_current(part).await;
        let may_have_collected = messages.iter().any(|message| message.coalesce);
        let after = |refusal: Refusal| if may_have_collected { refusal.after_an_earlier_try() } else { refusal };
        put(&mut results, &open, answers).map_err(after)?;
        for at in open.into_iter().filter(|at| messages[*at].coalesce) {
            // A closed shard may have collected the message of its id.
            let result = std::mem::replace(&mut results[at], Err(Refusal::moved()));
            results[at] = result.map_err(Refusal::after_an_earlier_try);
        }
        Ok(results)
    }
}

/// Puts the answer to a part of the messages, those at the positions `open`, into the results.
///
/// # Errors
/// That of the part, if it is all messages: the answer to the call.
fn put(results: &mut [Result<Enqueued, Refusal>], open: &[usize], answers: Items<Enqueued>) -> Result<(), Refusal> {
    match answers {
        Ok(answers) => open.iter().zip(answers).for_each(|(at, answer)| results[*at] = answer),
        Err(refusal) if open.len() == results.len() => return Err(refusal),
        Err(refusal) => open.iter().for_each(|at| results[*at] = Err(refusal.clone())),
    }
    Ok(())
}

impl<S: Store> OneQueue<'_, S> {
    /// Sends messages to closed shards. Most of them are refused there with [`Refusal::moved`].
    async fn enqueue_to(&self, generation: Generation, messages: Vec<NewMessage>) -> Items<Enqueued> {
        let numbers: Vec<u16> = messages.iter().map(|message| self.layout.number_of(generation, message)).collect();
        let parts = divide(messages, numbers.iter().copied().map(Ok));
        let (count, store) = (numbers.len(), &**self.store);
        let answers =
            send(self, count, parts, |shard, messages| async move { store.enqueue(&shard, messages).await }).await;
        let accepted = taken(&numbers, &answers);
        accepted.iter().for_each(|number| self.touch(*number));
        self.wakes(accepted);
        answers
    }

    /// Sends messages to the shards that take new ones.
    async fn enqueue_to_current(&self, messages: Vec<NewMessage>) -> Items<Enqueued> {
        let layout = &self.layout;
        let numbers: Vec<u16> = messages.iter().map(|message| layout.number_of(layout.current(), message)).collect();
        let parts = divide(messages, numbers.iter().copied().map(Ok));
        for (number, (_, messages)) in &parts.0 {
            // Of an exclusive queue only the first message of a value is runnable.
            let runnable = if layout.exclusivity_key().is_some() { 0 } else { messages.len() as u64 };
            let of_class = messages.iter().any(|message| message.priority_class.is_some());
            let head = messages.iter().map(|message| message.priority).min().filter(|_| !of_class);
            self.known().adds(*number, runnable, head);
            self.touch(*number);
        }
        let (count, store) = (numbers.len(), &**self.store);
        let answers =
            send(self, count, parts, |shard, messages| async move { store.enqueue(&shard, messages).await }).await;
        if !layout.old().is_empty() {
            // The Dequeue of the same flush was sent before, and the script wakes no caller of this server.
            self.wakes(taken(&numbers, &answers));
        }
        self.learn_of_a_change(&numbers, &answers).await;
        answers
    }

    /// A current shard that refuses a message as a closed one is none any more: the next call knows the layout that it has in mind.
    async fn learn_of_a_change(&self, numbers: &[u16], answers: &Items<Enqueued>) {
        let Ok(answers) = answers else { return };
        let moved = numbers.iter().zip(answers).find(|(_, answer)| answer.as_ref().is_err_and(Refusal::is_moved));
        // One of them is enough: each knows the change.
        if let Some((number, _)) = moved {
            self.learn_from(*number).await;
        }
    }

    /// Wakes the callers of this server that wait for messages of these shards.
    pub(super) fn wakes(&self, numbers: impl IntoIterator<Item = u16>) {
        numbers.into_iter().for_each(|number| self.all_estimates.wakes(&self.first.sibling(number)));
    }
}

/// The numbers of the shards that have accepted messages, or may have.
fn taken(numbers: &[u16], answers: &Items<Enqueued>) -> BTreeSet<u16> {
    let may_have = |answer: &Result<Enqueued, Refusal>| answer.as_ref().map_or_else(Refusal::may_have_acted, |_| true);
    match answers {
        Ok(answers) => {
            numbers.iter().zip(answers).filter(|(_, answer)| may_have(answer)).map(|(number, _)| *number).collect()
        }
        Err(refusal) if refusal.may_have_acted() => numbers.iter().copied().collect(),
        Err(_) => BTreeSet::new(),
    }
}
