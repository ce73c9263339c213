//! The first program of the README, client/examples/first.rs, as it is.

use super::dev::Dev;
use super::program;
use tallystone_tests::cargo_build;
use tokio::process::Command;

#[tokio::test]
async fn the_first_program_in_rust_sends_each_mail_once() {
    let dev = Dev::start().await;
    // With the features of the whole workspace, so that cargo shares the build of the tests.
    let path = cargo_build(&["--workspace", "--example", "first"]).join("examples/first");
    let mut command = Command::new(path);
    command.arg(dev.url()).kill_on_drop(true);
    let ended = program::run(command, "").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for customer in 0..10 {
        let sent = format!(": Hello, customer {customer}! (attempt 1, fencing token ");
        assert_eq!(ended.stdout.matches(&sent).count(), 1, "{ended:?}");
    }
    assert_eq!(ended.stdout.lines().last(), Some("10 completed"), "{ended:?}");
    dev.stop().await;
}
