//! The commands of `tallystone work` do not get the passwords of the worker's configuration.

use crate::system::dev::Dev;
use crate::system::program::{self, Running};

#[tokio::test]
async fn s6_a_command_does_not_get_the_configuration() {
    let dev = Dev::start().await;
    dev.ok(&["msg", "enqueue", "q", "--id", "m", "--meta", "mine=1"]).await;
    let mut command = program::command(&["work", "q", "--exec", "env; echo END"]);
    command.env("TALLYSTONE_SERVER", dev.url()).env("TALLYSTONE_NAMESPACE", "kept").env("HOME", "/kept");
    for name in [
        "TALLYSTONE_REDIS_URL",
        "TALLYSTONE_KAFKA_PROPERTIES",
        "TALLYSTONE_ELASTICSEARCH_URL",
        // Of the message of an outer `work`.
        "TALLYSTONE_META_THEIRS",
        "TALLYSTONE_KEY",
    ] {
        command.env(name, "S3cretPW");
    }
    let mut worker = Running::start(command);
    let mut variables = Vec::new();
    while variables.last().is_none_or(|line| line != "END") {
        variables.push(worker.line().await);
    }
    let text = variables.join("\n");
    assert!(!text.contains("S3cretPW"), "{text}");
    for kept in ["TALLYSTONE_SERVER=", "TALLYSTONE_NAMESPACE=kept", "HOME=/kept", "PATH="] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    for set in ["TALLYSTONE_ID=m", "TALLYSTONE_META_MINE=1", "TALLYSTONE_QUEUE=q"] {
        assert!(text.contains(set), "{set}: {text}");
    }
    assert!(worker.stop().await.success());
    dev.stop().await;
}
