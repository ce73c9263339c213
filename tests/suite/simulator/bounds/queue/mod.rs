//! The cases of the scripts of queues.
//!
//! What lives here: `enqueue`, `dequeue`; `verbs` (what workers and operators do to messages), `reads`, `upkeep` (queues as a
//! whole, and the work in the background). Each case fills a queue, `size` times as much as one call can reach, and makes one
//! call at its limit.

mod dequeue;
mod enqueue;
mod reads;
mod upkeep;
mod verbs;

use crate::simulator::bounds::budget::Case;
use tallystone_lua::Script;

pub(crate) async fn cases(script: Script, size: usize) -> Vec<Case> {
    match script {
        Script::CreateQueue => upkeep::create(size).await,
        Script::UpdateQueue => upkeep::update(size).await,
        Script::DeleteQueue => upkeep::delete(size).await,
        Script::Enqueue => enqueue::cases(size).await,
        Script::Dequeue => dequeue::cases(size).await,
        Script::Complete => verbs::complete(size).await,
        Script::ExtendLease => verbs::extend(size).await,
        Script::Release => verbs::release(size).await,
        Script::Cancel => verbs::cancel(size).await,
        Script::Redrive => verbs::redrive(size).await,
        Script::UpdateMessage => verbs::update(size).await,
        Script::ChangeMessages => verbs::change(size).await,
        Script::GetMessages => reads::get(size).await,
        Script::ListMessages => reads::list(size).await,
        Script::Explain => reads::explain(size).await,
        Script::Depth => reads::depth(size).await,
        Script::Ages => reads::ages(size).await,
        Script::BuildIndex => upkeep::build(size).await,
        Script::Sweep => upkeep::sweep(size).await,
        Script::Purge => upkeep::purge(size).await,
        Script::Check => reads::check(size).await,
        Script::AckOutbox => upkeep::ack(size).await,
        Script::AcquireLeaderLease => upkeep::lead(size).await,
    }
}
