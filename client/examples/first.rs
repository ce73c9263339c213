//! Enqueues ten mails and sends each of them once. Start a server with `tallystone dev`, then run
//! `cargo run -p tallystone-client --example first [http://127.0.0.1:7600]`.

use std::sync::Arc;
use tallystone_client::{Client, Failure, Lease, NewMessage, QueueConfig, Worker};
use tokio::sync::Semaphore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7600".to_owned());
    let client = Client::connect(url).await?;
    client.create_queue("mails", QueueConfig::simple()).await?;

    // The lower priority runs first. `unnamed` draws an id; name a message after what it stands for, and enqueueing it
    // again is no second message.
    let mails = (0..10).map(|n| NewMessage::unnamed(format!("Hello, customer {n}!")).priority(n)).collect();
    for result in client.enqueue("mails", mails).await? {
        result?;
    }

    // Runs `send` for each message, four at a time, until ten are sent. A service would stop on a signal.
    let sent = Arc::new(Semaphore::new(0));
    let count = Arc::clone(&sent);
    let stop = async move { drop(sent.acquire_many(10).await) };
    let stats = Worker::new(client, "mails")
        .name("mailer-1")
        .concurrency(4)
        .run_until(stop, async move |mail: Lease| {
            send(&mail).await?;
            count.add_permits(1);
            Ok(())
        })
        .await?;
    println!("{} completed", stats.completed);
    Ok(())
}

/// Sends one mail. An error releases the message, and it runs again later.
async fn send(mail: &Lease) -> Result<(), Failure> {
    let text = std::str::from_utf8(&mail.payload)?;
    // Pass the fencing token on to whatever the work writes to, and let that refuse a lower one.
    println!("{}: {text} (attempt {}, fencing token {})", mail.id, mail.attempt, mail.fencing_token);
    Ok(())
}
