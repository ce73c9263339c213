//! The result of a completed message (Q23), and the window in which its id is remembered (Q26), on the command line.

use super::dev::Dev;
use super::program::SOON;
use serde_json::json;
use tallystone_client::{Client, Completion, Dequeue};

#[tokio::test]
async fn q23_get_trace_and_search_show_the_result() {
    let dev = Dev::start().await;
    let client = Client::connect(dev.url()).await.expect("a client");
    dev.ok(&["queue", "create", "q", "--retention", "0s"]).await;
    dev.ok(&["queue", "create", "kept"]).await;
    for queue in ["q", "kept"] {
        dev.ok(&["msg", "enqueue", queue, "--id", "m"]).await;
        let lease = client.dequeue(Dequeue::new(queue)).await.expect("a lease").remove(0);
        let completion = Completion { result: "gate 7".into(), ..Completion::of(&lease) };
        client.complete(queue, vec![completion]).await.expect("an answer").remove(0).expect("a live lease");
    }
    assert_eq!(dev.ok(&["msg", "get", "kept", "m"]).await["result"], "gate 7");
    assert!(client.history_caught_up(SOON).await.expect("an answer"), "the index does not catch up");
    for queue in ["q", "kept"] {
        let trace = dev.call(&["msg", "trace", queue, "m"]).await.json();
        let results: Vec<_> = trace.iter().filter(|transition| !transition["result"].is_null()).collect();
        assert_eq!(results.len(), 1, "{trace:?}");
        assert_eq!((&results[0]["to"], &results[0]["result"]), (&json!("completed"), &json!("gate 7")));
        let found = dev.ok(&["msg", "search", "--queue", queue, "--gone"]).await;
        assert_eq!(found["result"], "gate 7", "{found}");
        assert!(dev.show(&["msg", "trace", queue, "m"]).await.contains("result: gate 7"));
        assert!(dev.show(&["msg", "search", "--queue", queue, "--gone"]).await.contains("gate 7"));
    }
    dev.stop().await;
}

#[tokio::test]
async fn q26_the_window_of_ids_is_set_and_shown() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q", "--id-window", "1h"]).await;
    assert!(dev.show(&["queue", "describe", "q"]).await.contains("1h after the message ended"));
    let updated = dev.ok(&["queue", "update", "q", "--id-window", "0s"]).await;
    assert_eq!(updated["config"]["id_window_ms"], 0, "{updated}");
    assert!(dev.show(&["queue", "describe", "q"]).await.contains("while the message is kept"));
    dev.stop().await;
}
