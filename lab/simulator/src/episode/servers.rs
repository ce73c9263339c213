//! The servers of an episode: each is a store of whole queues with its clock and what it has cached. A server that dies is replaced by
//! one that knows nothing.
//!
//! A store calls several shards at once, and spawns a task for one that does not answer. All of them run on the one thread of the
//! episode: tokio runs what is ready in the order in which it became ready, so the seed decides that, too.

use super::faults::SERVERS;
use super::wire::Wire;
use super::world::World;
use crate::scripting::locked;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tallystone_link::{Clock, Node};
use tallystone_model::limits::CLOCK_SKEW_MAX_MS;
use tallystone_model::{Applied, Refusal};
use tallystone_server::Sharded;
use tallystone_server::store::{RedisOptions, RedisStore};

/// What a server calls.
pub(super) type ServerStore = Sharded<RedisStore>;

/// A server that lives, and how many have died in its place.
struct Living {
    deaths: u64,
    store: Arc<ServerStore>,
}

/// See the module.
pub(super) struct Servers {
    world: Arc<World>,
    living: [Mutex<Living>; SERVERS],
}

impl Servers {
    pub(super) fn new(world: &Arc<World>) -> Servers {
        let living = |server| Mutex::new(Living { deaths: 0, store: start(world, server, 0) });
        Servers { world: world.clone(), living: std::array::from_fn(living) }
    }

    /// Makes a call through a server. If it dies meanwhile, the call may have taken effect.
    pub(super) async fn call<T, F>(&self, server: usize, call: impl FnOnce(Arc<ServerStore>) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        let (died, deaths) = (self.world.died(server), self.world.deaths(server));
        let store = {
            let mut living = locked(&self.living[server]);
            if living.deaths != deaths {
                *living = Living { deaths, store: start(&self.world, server, deaths) };
            }
            living.store.clone()
        };
        let call = OnServer { world: &self.world, server, call: Box::pin(call(store)) };
        tokio::select! {
            biased;
            answer = call => answer,
            () = died => {
                Err(Refusal::Unavailable { applied: Applied::Unknown, why: "the server died".to_owned() })
            }
        }
    }
}

fn start(world: &Arc<World>, server: usize, deaths: u64) -> Arc<ServerStore> {
    let node: Arc<dyn Node> = Arc::new(Wire { world: world.clone(), server, deaths, generation: None, node: 0 });
    let options = RedisOptions { clock: Clock::redis("queues", CLOCK_SKEW_MAX_MS), ..RedisOptions::default() };
    let store = RedisStore::within_process(node, options, format!("server-{server}-{deaths}"));
    Arc::new(Sharded::new(Arc::new(store)))
}

/// A call, during which the clock of this thread is that of its server.
struct OnServer<'a, F> {
    world: &'a World,
    server: usize,
    call: Pin<Box<F>>,
}

impl<F: Future> Future for OnServer<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.world.set_clocks_of(self.server);
        self.call.as_mut().poll(context)
    }
}
