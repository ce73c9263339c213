//! The image.

use super::engine::{Container, Network, image, podman};
use crate::security::certificates::Ca;
use crate::system::program;
use std::os::unix::fs::chown;
use tallystone_client::{Client, Completion, Dequeue, NewMessage};

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_the_image_serves_without_root_and_stops_in_order() {
    let network = Network::new("image");
    let redis = Container::redis(&network);
    let (server, url) = Container::server(&[&network], &redis).await;
    let client = Client::connect(&url).await.expect("the server");
    client.enqueue("q", vec![NewMessage::new("a", "payload")]).await.expect("an Enqueue")[0]
        .as_ref()
        .expect("a message");
    let lease = client.dequeue(Dequeue::new("q").wait_ms(5_000)).await.expect("a Dequeue").remove(0);
    client.complete("q", vec![Completion::of(lease.lease_ref())]).await.expect("a Complete")[0].as_ref().expect("done");

    assert_eq!(podman(&["exec", &server.0, "id", "-u"]), "7600");
    let bytes: u64 =
        podman(&["exec", &server.0, "stat", "-c", "%s", "/usr/local/bin/tallystone"]).parse().expect("a size");
    let built = std::fs::metadata(program::path()).expect("the program").len();
    assert!(bytes < built * 4 / 5, "the program has {bytes} bytes, and {built} with its symbols: is it stripped?");
    // A server without its Redis is up, but not healthy.
    podman(&["pause", &redis.0]);
    assert!(client.with_retry_for(std::time::Duration::ZERO).get_queue("q").await.is_err());
    server.is_unhealthy().await;
    podman(&["unpause", &redis.0]);
    server.is_healthy().await;
    // SIGTERM ends it in order, long before podman would kill it.
    podman(&["stop", "--time", "60", &server.0]);
    assert_eq!(podman(&["inspect", "--format", "{{.State.ExitCode}}", &server.0]), "0", "{}", server.logs());
    assert!(podman(&["inspect", "--format", "{{.Config.User}}", image()]).starts_with("7600"));
}

#[tokio::test]
#[ignore = "needs a container engine: ./test --containers"]
async fn o4_the_health_check_of_the_image_needs_no_change_for_tls() {
    const USER: Option<u32> = Some(7600);
    let (network, dir) = (Network::new("tls"), tempfile::TempDir::new().expect("a temporary folder"));
    let redis = Container::redis(&network);
    let files = Ca::new(dir.path(), "ca").server(dir.path());
    for file in [dir.path(), &files.certificate, &files.key] {
        chown(file, USER, USER).expect("the user of the image");
    }
    let variable = format!("TALLYSTONE_REDIS_URL=redis://{}:6379", redis.0);
    let mount = format!("{}:/tls:ro", dir.path().display());
    let options = ["--network", &network.0, "--env", &variable, "--volume", &mount, "--restart", "always"];
    let command =
        ["server", "--listen", "0.0.0.0:7600", "--tls-cert", "/tls/server.crt", "--tls-key", "/tls/server.key"];
    Container::run("server", &options, image(), &command).is_healthy().await;
}
