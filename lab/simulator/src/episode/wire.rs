//! The connection of one server to the Redis of an episode.

use super::world::World;
use redis::{Cmd, RedisError};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::{Node, NodeReply};
use tokio::time::sleep;

/// See the module.
pub(super) struct Wire {
    pub(super) world: Arc<World>,
    pub(super) server: usize,
    /// How many servers had died in its place when it began.
    pub(super) deaths: u64,
    /// That of the connections among which this is one; `None`: it is not connected.
    pub(super) generation: Option<u64>,
    /// The node to which it leads.
    pub(super) node: u64,
}

impl Node for Wire {
    fn open(self: Arc<Self>) -> Arc<dyn Node> {
        let (world, server, deaths) = (self.world.clone(), self.server, self.deaths);
        let (generation, node) = (Some(world.generation()), world.node());
        Arc::new(Wire { world, server, deaths, generation, node })
    }

    fn call<'a>(&'a self, command: &'a Cmd) -> NodeReply<'a> {
        let (world, server, node) = (self.world.clone(), self.server, self.node);
        let generation = world.generation();
        // A task that the server has spawned may outlive it for a moment, and has the clocks of the last call on any server.
        world.set_clocks_of(server);
        if world.is_down() || self.generation != Some(generation) || world.deaths(server) != self.deaths {
            return Box::pin(std::future::ready(Err(broken("Redis does not answer"))));
        }
        let (trip, command) = (world.draw_trip(), command.clone());
        let noticed_ms = trip.noticed_ms;
        let of_server = self.world.clone();
        // Separate from the caller: what is on its way arrives although its server dies.
        let arrives = tokio::spawn(async move {
            pause(trip.request_ms).await;
            if trip.loses_request || world.generation() != generation {
                return None;
            }
            let reply = world.execute(server, node, &command);
            pause(trip.reply_ms).await;
            (!trip.loses_reply && world.generation() == generation).then_some(reply)
        });
        Box::pin(async move {
            let reply = match arrives.await {
                Ok(Some(reply)) => reply,
                _ => {
                    pause(noticed_ms).await;
                    Err(broken("the connection broke"))
                }
            };
            of_server.set_clocks_of(server);
            reply
        })
    }
}

async fn pause(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}

fn broken(why: &'static str) -> RedisError {
    RedisError::from(io::Error::new(io::ErrorKind::BrokenPipe, why))
}
