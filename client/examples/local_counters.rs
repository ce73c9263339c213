//! Counts in this process, pushes the counts to the service, and reads them with their error bound. Start a server with `tallystone dev`,
//! then run `cargo run -p tallystone-client --features local --example local_counters [http://127.0.0.1:7610]`. Run it again, or kill it in
//! the middle and run it again: no add is lost, and none counts twice.

use std::thread;
use tallystone_client::CounterClient;
use tallystone_client::local::{LocalCounters, LocalOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7610".to_owned());
    let client = CounterClient::connect(url).await?;
    let folder = std::env::temp_dir().join("tallystone-local-counters");
    let counters = LocalCounters::open(folder, client, LocalOptions::default()).await?;

    // `default` is the namespace that `tallystone dev` makes. Handles are cheap to clone; keep them, and add from any thread.
    let clicks = counters.counter("default", "clicks")?;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let clicks = clicks.clone();
            thread::spawn(move || (0..1_000_000).for_each(|_| clicks.add(1)))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }

    counters.pull().await?;
    let reading = clicks.get();
    println!("{} clicks, of which {} are not pushed yet", reading.value, clicks.unpushed());
    println!("the value differs from the count of all clicks by at most {:?}", reading.error_bound);

    // Pushes the rest. Without it, the next run would.
    counters.close().await?;
    Ok(())
}
