//! The data of `tallystone dev` and its Redis are for the user who started it, and for no other user of the machine.

use crate::system::dev::Dev;
use crate::system::program;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

/// The permissions of a file or folder.
fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("a file").permissions().mode() & 0o7777
}

/// The files and folders below a folder that another user could use if the folder were open.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if mode(&path) & 0o077 != 0 {
            found.push(path.display().to_string());
        }
        if path.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[tokio::test]
async fn s1_the_data_of_dev_is_private() {
    let home = TempDir::new().expect("a temporary folder");
    let (new, existing) = (home.path().join("a/new"), home.path().join("existing"));
    std::fs::create_dir(&existing).expect("a folder");
    std::fs::set_permissions(&existing, PermissionsExt::from_mode(0o777)).expect("a mode");
    for dir in [&new, &existing] {
        let dev = Dev::start_in(dir, &[]).await;
        dev.ok(&["msg", "enqueue", "q", "--id", "m"]).await;
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
        assert_eq!(open_to_others(dir), Vec::<String>::new());
        dev.stop().await;
    }
    // A folder for everybody stays one.
    let shared = home.path().join("shared");
    std::fs::create_dir(&shared).expect("a folder");
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).expect("a mode");
    let ended = program::run(Dev::command(&shared, &[], &[]), "").await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a folder in it"), "{ended:?}");
    assert_eq!(mode(&shared), 0o1777);
}

#[tokio::test]
async fn s1_the_redis_of_dev_wants_a_password() {
    let home = TempDir::new().expect("a temporary folder");
    let dir = home.path().join("data");
    std::fs::create_dir(&dir).expect("a folder");
    // What another user has put there before is not used.
    let elsewhere = home.path().join("elsewhere");
    std::fs::write(&elsewhere, "kept").expect("a file");
    symlink(&elsewhere, dir.join("redis.conf")).expect("a link");
    let dev = Dev::start_in(&dir, &[]).await;
    let url = dev.ready["redis_url"].as_str().expect("a URL");
    let client = redis::Client::open(url).expect("a URL");
    let refused = match client.get_multiplexed_async_connection().await {
        Err(error) => error,
        Ok(mut connection) => {
            let keys = redis::cmd("KEYS").arg("*").query_async::<Vec<String>>(&mut connection).await;
            keys.expect_err("another user reads the data of dev")
        }
    };
    assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
    assert_eq!(std::fs::read_to_string(&elsewhere).expect("a file"), "kept");

    // The user finds the password, and `ps` does not show it.
    let mut connection = dev.redis().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("keys");
    assert!(!keys.is_empty());
    let password = dev.redis_password();
    assert!(password.len() >= 32, "{password}");
    assert!(!dev.ready.to_string().contains(&password));
    for process in std::fs::read_dir("/proc").expect("the processes") {
        let path = process.expect("a process").path().join("cmdline");
        let line = std::fs::read(path).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&password), "{}", String::from_utf8_lossy(&line));
    }
    dev.stop().await;
    // Each start has another.
    let dev = Dev::start_in(&dir, &[]).await;
    assert_ne!(dev.redis_password(), password);
    dev.stop().await;
}
