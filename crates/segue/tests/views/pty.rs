//! A program on a terminal of a given size.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// How long a program may take to show the awaited output.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal, its program, and the program's output.
pub(crate) struct Pty {
    child: Child,
    slave: Option<OwnedFd>,
    news: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// The whole output, including escape sequences.
    pub raw: String,
    /// The screen after each chunk of output.
    pub screens: Vec<String>,
}

impl Pty {
    /// Starts a program whose standard streams are all the terminal. `kind` is its TERM.
    pub(crate) fn start(columns: u16, rows: u16, kind: Option<&str>, command: &mut Command) -> Pty {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end()).env_remove("TERM").env_remove("NO_COLOR");
        if let Some(kind) = kind {
            command.env("TERM", kind);
        }
        let child = command.spawn().unwrap();
        // The command holds copies of the terminal's end as long as it lives.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (sink, news) = channel();
        let mut master = File::from(pty.master);
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            // Reading fails once the other end is closed everywhere.
            while let Ok(read @ 1..) = master.read(&mut buffer) {
                if sink.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen =
            vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 1_000);
        let (raw, screens) = (String::new(), Vec::new());
        Pty { child, slave: Some(pty.slave), news, screen, raw, screens }
    }

    /// Waits until the screen satisfies `wanted`.
    pub(crate) fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(screen) = self.screens.last().filter(|screen| wanted(screen)) {
                return screen.clone();
            }
            if let Ok(bytes) = self.news.recv_timeout(Duration::from_millis(100)) {
                self.take(&bytes);
            }
        }
        panic!("not on the screen: {what}\n{}", self.screen.screen().contents());
    }

    /// Waits for `n` further chunks of output.
    pub(crate) fn pieces(&mut self, n: usize) {
        for _ in 0..n {
            let bytes = self.news.recv_timeout(PATIENCE).expect("it draws again");
            self.take(&bytes);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.raw += &String::from_utf8_lossy(bytes);
        self.screens.push(self.screen.screen().contents());
    }

    /// Resizes the terminal, as a user resizes a window.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let slave = self.slave.as_ref().unwrap().try_clone().unwrap();
        let (columns_text, rows_text) = (columns.to_string(), rows.to_string());
        let stty = Command::new("stty")
            .args(["cols", &columns_text, "rows", &rows_text])
            .stdin(Stdio::from(slave))
            .status();
        assert!(stty.unwrap().success());
        let screen = self.screen.screen_mut();
        screen.set_size(rows.try_into().unwrap(), columns.try_into().unwrap());
    }

    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap())
    }

    /// Waits until the program exits, and returns the last screen.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        self.slave = None;
        let start = Instant::now();
        while let Ok(bytes) = self.news.recv_timeout(PATIENCE.saturating_sub(start.elapsed())) {
            self.take(&bytes);
        }
        assert!(start.elapsed() < PATIENCE, "it does not end\n{}", self.screen.screen().contents());
        (self.child.wait().unwrap(), self.screen.screen().contents())
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
