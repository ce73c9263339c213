//! Ten messages in, ten messages out. Start a server first (`tallystone dev`), then
//! `cargo run --release -p tallystone-client --example hello [http://127.0.0.1:7600]`.

use std::sync::Arc;
use tallystone_client::{Client, Lease, NewMessage, QueueConfig, Worker};
use tokio::sync::Semaphore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7600".to_owned());
    let client = Client::connect(url).await?;
    client.create_queue("hello", QueueConfig::simple()).await?;

    let messages = (0..10).map(|n| NewMessage::unnamed(format!("hello {n}")).priority(-n)).collect();
    for result in client.enqueue("hello", messages).await? {
        result?;
    }

    // The worker stops when every message was greeted.
    let greeted = Arc::new(Semaphore::new(0));
    let count = Arc::clone(&greeted);
    let stats = Worker::new(client, "hello")
        .name("greeter")
        .run_until(async move { drop(greeted.acquire_many(10).await) }, move |lease: Lease| {
            println!("{}", String::from_utf8_lossy(&lease.payload));
            count.add_permits(1);
            async { Ok(()) }
        })
        .await?;
    println!("{} completed", stats.completed);
    Ok(())
}
