//! A filter index that is built in the background while its queue is in use counts and orders in the end what one that
//! was there from the beginning would (Q8, Q9).

use crate::property::compare::{Outcome, same};
use crate::property::program::{Act, Step, draw_busy, id_of};
use crate::property::world::{PATIENCE, World};
use std::sync::Arc;
use tallystone_model::store::DequeueRequest;
use tallystone_model::{QueueConfig, Refusal, Store};
use tallystone_tests::{KEY, TestRedis, exclusive, filter, request, simple, tagged};

/// More than an index is built over while its caller waits. In a simple queue the background steps are larger.
fn messages(config: &QueueConfig) -> usize {
    if config.queue_type.key().is_some() { 3_000 } else { 15_000 }
}

/// The steps that bring a queue with many messages about.
fn fill(queue: usize, config: QueueConfig) -> Vec<Step> {
    let message = |at: usize| {
        let value = format!("v{}", at % 300);
        tagged(id_of(at).as_str(), (at % 7) as i64, &[(KEY, &value), ("org", ["x", "yy"][at % 2]), ("car", "1")])
    };
    let batch = |from: usize| Act::Enqueue((from..from + 1_000).map(message).collect());
    let batches = (0..messages(&config)).step_by(1_000).map(batch);
    let acts: Vec<Act> = std::iter::once(Act::Create(config)).chain(batches).collect();
    acts.into_iter().map(|act| Step { queue, server: 0, repeat: false, act }).collect()
}

async fn build(world: &mut World, seed: u64, queue: usize, config: QueueConfig) -> Outcome {
    let mut play = world.play(PATIENCE);
    for step in fill(queue, config) {
        play.step(&step).await?;
    }
    let shard = play.shards[queue].clone();
    let filters = [filter(&[("org", "x")]), filter(&[("car", "1"), ("org", "yy")])];
    let is_building = |answer: &Result<_, Refusal>| matches!(answer, Err(Refusal::IndexBuilding { .. }));
    if !is_building(&play.servers[0].depth(&shard, Some(&filters[0])).await) {
        return Err("the index was built at once: the queue is too small for this test".to_owned());
    }
    // The other server builds it too.
    let _ = play.servers[1].depth(&shard, Some(&filters[0])).await;
    let mut steps_meanwhile = 0;
    let mut steps = draw_busy(seed, queue);
    for filter in &filters {
        loop {
            match play.servers[0].depth(&shard, Some(filter)).await {
                answer if is_building(&answer) => {
                    play.step(&steps.next().expect("steps without end")).await?;
                    steps_meanwhile += 1;
                }
                answer => {
                    break same(
                        "the depth under a new index",
                        &play.oracle.depth(&shard, Some(filter)).await,
                        &answer,
                    )?;
                }
            }
        }
    }
    play.compare_all(0).await?;
    if steps_meanwhile == 0 {
        return Err("nothing happened while the index was built: this proves nothing".to_owned());
    }
    for request in [request(1), request(100)].map(|request| DequeueRequest { filters: filters.to_vec(), ..request }) {
        let act = Act::Dequeue { requests: vec![request], wait: false, ticket: None };
        play.step(&Step { queue, server: 1, repeat: false, act }).await?;
    }
    play.compare_all(1).await?;
    play.leaves_nothing().await
}

#[tokio::test]
async fn q8_an_index_is_built_while_its_queue_is_used() {
    let mut world = World::new(Arc::new(TestRedis::start().await), "built".to_owned(), 1).await;
    let seed = super::setting("TALLYSTONE_PROPERTY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    for (queue, config) in [exclusive(), simple()].into_iter().enumerate() {
        if let Err(differs) = build(&mut world, seed, queue, config).await {
            panic!("TALLYSTONE_PROPERTY_SEED={seed} repeats it: {differs}");
        }
    }
}
