//! redis-server as a child process.

use crate::LocalError;
use crate::child::{Launch, Readiness};
use crate::lock::{lock, make_dir, unusable};
use crate::module::MODULE_FILE;
use crate::ports::on_a_port;
use crate::private::{new_password, write_private};
use crate::running::Running;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long it may take until it answers at all; loading a large file does not count.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How long a clean stop may take before SIGKILL.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// When redis writes its append-only file to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before each reply (Q16).
    #[default]
    Always,
    /// Once a second: a crash of the machine loses a second.
    EverySecond,
    /// When the kernel likes.
    No,
}

impl Fsync {
    fn argument(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::No => "no",
        }
    }
}

/// Whether it has a password, so that other users of the machine cannot use it. The user finds it in the data folder, in
/// [`REDIS_CONF`]. A command line would show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Password {
    /// It has none.
    #[default]
    None,
    /// A new one for each start.
    New,
    /// This one, which its primary has, too.
    Shared(String),
}

/// What to start.
#[derive(Clone, Debug)]
pub struct PrivateRedisOptions {
    /// The program; by default the environment's `TALLYSTONE_REDIS_SERVER`, else `redis-server`.
    pub program: PathBuf,
    /// Where its data, log (`redis.log`) and lock live; made if it is not there.
    pub data_dir: PathBuf,
    /// Its port; `None`: a free one.
    pub port: Option<u16>,
    /// When writes reach the disk.
    pub fsync: Fsync,
    /// Its password.
    pub password: Password,
    /// More arguments, as on the command line of redis-server: `["--maxmemory", "64mb"]`.
    pub extra_args: Vec<String>,
    /// Its environment, on top of ours.
    pub environment: Vec<(&'static str, OsString)>,
}

impl PrivateRedisOptions {
    /// The defaults, in this folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let program = std::env::var_os("TALLYSTONE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        PrivateRedisOptions {
            program: program.into(),
            data_dir: data_dir.into(),
            port: None,
            fsync: Fsync::default(),
            password: Password::None,
            extra_args: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// The same, with this module.
    pub fn load_module(mut self, path: &Path) -> Self {
        self.extra_args.extend(["--loadmodule".to_owned(), path.display().to_string()]);
        self
    }
}

/// In the data folder: the configuration with the password, `requirepass PASSWORD`.
pub const REDIS_CONF: &str = "redis.conf";

/// The kind.
pub enum Redis {}

/// A running redis-server. Dropping it stops it.
pub type PrivateRedis = Running<Redis>;

impl PrivateRedis {
    /// Starts it and waits until it answers, its file loaded.
    pub async fn start(options: PrivateRedisOptions) -> Result<PrivateRedis, LocalError> {
        let program = installed(&options.program)?;
        let dir = make_dir(&options.data_dir)?;
        let start = async |port: u16| {
            // Before the password is written: another may be running there.
            let lock = lock("redis", &dir).await?;
            let password = give_password(&options.password, &dir).map_err(unusable(&dir))?;
            let url = url(password.as_deref(), port);
            let launch = Launch {
                name: "redis",
                dir: dir.clone(),
                command: command(&options, &program, &dir, port),
                environment: options.environment.clone(),
                port,
                answer_wait: ANSWER_WAIT,
                stop_wait: STOP_WAIT,
                explain,
            };
            let running = Running::launch(launch, lock, async |pid| probe(&url, pid).await).await?;
            Ok(running.with_password(password))
        };
        on_a_port(options.port, start, unusable(&dir)).await
    }

    /// Where it listens: `redis://127.0.0.1:PORT`, or `redis://:PASSWORD@127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        url(self.password(), self.port())
    }

    /// The same without the password, fit to be shown.
    pub fn shown_url(&self) -> String {
        url(None, self.port())
    }
}

fn url(password: Option<&str>, port: u16) -> String {
    match password {
        Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
        None => format!("redis://127.0.0.1:{port}"),
    }
}

/// Writes a configuration with the password.
fn give_password(wanted: &Password, dir: &Path) -> std::io::Result<Option<String>> {
    let (password, conf) = match wanted {
        Password::None => return Ok(None),
        Password::New => new_password().map(|password| (password.clone(), format!("requirepass {password}\n")))?,
        Password::Shared(password) => (password.clone(), format!("requirepass {password}\nmasterauth {password}\n")),
    };
    write_private(&dir.join(REDIS_CONF), &conf)?;
    Ok(Some(password))
}

/// The program's full path, or its place as given.
fn installed(program: &Path) -> Result<PathBuf, LocalError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|dir| dir.join(program));
    // A path with a folder in it is not looked for; joined to one, a full path stays what it is.
    let is_path = program.components().count() > 1;
    let found = if is_path { program.is_file().then(|| program.to_owned()) } else { places.find(|p| p.is_file()) };
    found.ok_or_else(|| LocalError::NotInstalled {
        what: program.display().to_string(),
        remedy:
            "install Redis 7 or newer (Debian, Ubuntu: apt-get install redis-server), or set TALLYSTONE_REDIS_SERVER \
                 to the program"
                .to_owned(),
    })
}

/// Redis refuses data whose module it has not loaded: values in a snapshot, and commands in a log.
fn explain(launch: &Launch, log: &str) -> Option<LocalError> {
    let is_compact = |line: &str| {
        // A log has the command as its client wrote it.
        line.contains("no matching module type 'tstone-ct'") || line.to_lowercase().contains("unknown command 'ct.")
    };
    log.lines().any(is_compact).then(|| LocalError::ModuleNeeded { path: launch.dir.clone(), module: MODULE_FILE })
}

fn command(options: &PrivateRedisOptions, program: &Path, dir: &Path, port: u16) -> Vec<OsString> {
    let port = port.to_string();
    let mut command: Vec<OsString> = vec!["--".into(), program.into()];
    command.extend((options.password != Password::None).then(|| dir.join(REDIS_CONF).into_os_string()));
    let arguments = ["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no", "--dir"];
    command.extend(arguments.map(OsString::from));
    command.push(dir.into());
    let arguments = ["--appendonly", "yes", "--appendfsync", options.fsync.argument(), "--save", ""];
    command.extend(arguments.map(OsString::from));
    command.extend(["--maxmemory-policy", "noeviction"].map(OsString::from));
    command.extend(options.extra_args.iter().map(OsString::from));
    command
}

/// Whether the redis at `url` is the process `pid`, and ready.
async fn probe(url: &str, pid: u32) -> Readiness {
    let info = async {
        let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        redis::cmd("INFO").query_async::<String>(&mut connection).await
    };
    match info.await {
        Ok(info) if !info.lines().any(|line| line == format!("process_id:{pid}")) => Readiness::None,
        Ok(info) if info.lines().any(|line| line == "loading:0") => Readiness::Ready,
        Ok(_) => Readiness::Loading,
        Err(_) => Readiness::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    async fn set(redis: &PrivateRedis, value: u64) {
        let mut connection =
            redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
        redis::cmd("SET").arg("k").arg(value).query_async::<()>(&mut connection).await.unwrap();
    }

    async fn get(redis: &PrivateRedis) -> u64 {
        let mut connection =
            redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
        redis::cmd("GET").arg("k").query_async(&mut connection).await.unwrap()
    }

    #[tokio::test]
    async fn q16_what_was_acknowledged_survives_a_stop_and_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let options = PrivateRedisOptions::new(dir.path());
        let redis = PrivateRedis::start(options.clone()).await.unwrap();
        set(&redis, 1).await;
        redis.stop().await;

        let redis = PrivateRedis::start(options.clone()).await.unwrap();
        assert_eq!(get(&redis).await, 1);
        set(&redis, 2).await;
        let (port, pid) = (redis.port(), redis.pid());
        redis.kill();

        let again = PrivateRedis::start(PrivateRedisOptions { port: Some(port), ..options }).await.unwrap();
        assert_eq!(get(&again).await, 2);
        assert_ne!(again.pid(), pid);
        // Harmless: the process behind it is gone.
        drop(redis);
        assert_eq!(get(&again).await, 2);
    }

    #[tokio::test]
    async fn s1_a_password_is_wanted_and_not_in_the_arguments() {
        let dir = tempfile::tempdir().unwrap();
        let options = PrivateRedisOptions { password: Password::New, ..PrivateRedisOptions::new(dir.path()) };
        let redis = PrivateRedis::start(options.clone()).await.unwrap();
        set(&redis, 1).await;
        let without = redis::Client::open(redis.shown_url()).unwrap();
        let refused = match without.get_multiplexed_async_connection().await {
            Ok(mut connection) => redis::cmd("GET").arg("k").query_async::<u64>(&mut connection).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(refused.code(), Some("NOAUTH"), "{refused}");
        let conf = std::fs::read_to_string(dir.path().join(REDIS_CONF)).unwrap();
        let password = conf.trim().strip_prefix("requirepass ").unwrap();
        let arguments = std::fs::read(format!("/proc/{}/cmdline", redis.pid())).unwrap();
        assert!(!String::from_utf8_lossy(&arguments).contains(password));
        // One that is refused the folder does not change the password.
        assert!(PrivateRedis::start(options).await.is_err());
        assert_eq!(std::fs::read_to_string(dir.path().join(REDIS_CONF)).unwrap(), conf);
        assert_eq!(get(&redis).await, 1);
    }

    #[tokio::test]
    async fn a_folder_has_one_redis() {
        let dir = tempfile::tempdir().unwrap();
        let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.unwrap();
        let error = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.unwrap_err().to_string();
        assert!(error.contains(&format!("process {}, port {}", redis.pid(), redis.port())), "{error}");
    }

    #[test]
    fn w1_data_of_the_compact_store_names_its_module() {
        let launch = Launch {
            name: "redis",
            dir: "/data".into(),
            command: Vec::new(),
            environment: Vec::new(),
            port: 0,
            answer_wait: ANSWER_WAIT,
            stop_wait: STOP_WAIT,
            explain,
        };
        for line in [
            "# Unknown command 'ct.create' reading the append only file appendonly.aof.1.incr.aof",
            "# Internal error in RDB reading offset 0, function at rdb.c:2636 -> The RDB file contains module data I can't \
             load: no matching module type 'tstone-ct'",
        ] {
            let error = explain(&launch, &format!("* first\n{line}\nlast")).expect("known").to_string();
            assert!(error.contains(MODULE_FILE) && error.contains("/data"), "{error}");
        }
        assert!(explain(&launch, "# Unknown command 'bf.add' reading the append only file").is_none());
    }

    #[tokio::test]
    async fn what_is_missing_or_wrong_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let options = PrivateRedisOptions::new(dir.path());
        let missing = PrivateRedisOptions { program: "no-such-redis".into(), ..options.clone() };
        let error = PrivateRedis::start(missing).await.unwrap_err();
        assert!(matches!(error, LocalError::NotInstalled { .. }), "{error}");
        let wrong = PrivateRedisOptions { extra_args: vec!["--no-such-option".into(), "1".into()], ..options.clone() };
        let error = PrivateRedis::start(wrong).await.unwrap_err();
        assert!(error.to_string().contains("no-such-option"), "{error}");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = PrivateRedis::start(PrivateRedisOptions { port: Some(port), ..options }).await.unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
    }
}
