//! A pseudo-terminal with the program in it, as a person sees it.

use super::dev::Dev;
use super::program::{self, SOON};
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// The program in its terminal. Killed when it is dropped.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: UnboundedReceiver<Vec<u8>>,
    /// Everything shown so far; each line ends with `\r\n`.
    pub(crate) shown: String,
}

impl Terminal {
    pub(crate) fn start(mut command: Command, columns: u16) -> Terminal {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).expect("a pseudo-terminal");
        let slave = || -> OwnedFd { pty.slave.try_clone().expect("a file descriptor") };
        command.stdin(slave()).stdout(slave()).stderr(slave()).env("TERM", "xterm-256color");
        let child = command.spawn().expect("the program starts");
        // Only the program holds the terminal now, so reading ends with it.
        drop((command, pty.slave));
        let keyboard = File::from(pty.master);
        let mut reader = keyboard.try_clone().expect("a file descriptor");
        let (show, screen) = unbounded_channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // EIO is the end of a terminal.
            while let Ok(read @ 1..) = reader.read(&mut bytes)
                && show.send(bytes[..read].to_vec()).is_ok()
            {}
        });
        Terminal { child, keyboard, screen, shown: String::new() }
    }

    /// Waits until this text is shown.
    pub(crate) async fn until(&mut self, text: &str) {
        while !self.shown.contains(text) {
            assert!(self.read().await, "it ended: {}", self.shown);
        }
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").expect("a terminal");
    }

    /// Waits for the program's end. Returns its exit code and all that it has shown.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
        while self.read().await {}
        let status = timeout(SOON, self.child.wait()).await.expect("it ends in time").expect("a child");
        (status.code(), self.shown)
    }

    async fn read(&mut self) -> bool {
        let bytes = timeout(SOON, self.screen.recv()).await.unwrap_or_else(|_| panic!("no more than: {}", self.shown));
        let Some(bytes) = bytes else { return false };
        self.shown += &String::from_utf8_lossy(&bytes);
        true
    }
}

/// The text without colours, line by line.
pub(crate) fn plain_lines(shown: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = shown;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain += before;
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    (plain + rest).lines().map(str::to_owned).collect()
}

/// Runs a verb to its end in a terminal with 80 columns.
pub(crate) async fn show(dev: &Dev, args: &[&str]) -> String {
    let command = program::command(&[&["--server", dev.url()], args].concat());
    let (code, shown) = Terminal::start(command, 80).ended().await;
    assert_eq!(code, Some(0), "{args:?}: {shown}");
    shown
}
